# SPDX-License-Identifier: Apache-2.0
"""An invocation whose answer is awaited on an event loop, where its connection is served too."""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from quickthaw.snapshot.errors import FunctionError
from quickthaw.snapshot.host.invocation import MAX_WAITING_CHUNKS, Chunk, End, Invocation, timeout_error


def _ignore(error: FunctionError | None) -> None:
    del error


class AsyncInvocation(Invocation):
    """Iterate with `async for`; to be made on the loop.

    `on_over` is called once, on the loop, when the function is done with it: it has answered, or failed, or
    was killed at the deadline, however much of the answer has still to be read. Who iterates sees the end
    only after that.
    """

    def __init__(self, event: bytes, timeout_s: float, trace_id: str | None = None) -> None:
        super().__init__(event, timeout_s, trace_id)
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        self._arrived: deque[Chunk | End] = deque()
        self._arrival: asyncio.Future[None] | None = None
        self._timer = self._loop.call_later(timeout_s, self._time_out)
        self.on_over: Callable[[FunctionError | None], object] = _ignore
        self._timeout: End | None = None
        self._is_paused = False
        self.is_over = False  # for the function; `_is_over` is for who iterates

    def __aiter__(self) -> "AsyncInvocation":
        return self

    async def __anext__(self) -> Chunk:
        """Wait for the next chunk.

        Raises: FunctionError, and FunctionTimeoutError at the deadline.
        """
        if self._is_over:
            raise StopAsyncIteration
        while not self._arrived:
            self._arrival = self._loop.create_future()
            await self._arrival
        item = self._arrived.popleft()
        if isinstance(item, End):
            self._is_over = True
            if item.error is not None:
                raise item.error
            raise StopAsyncIteration
        if self._is_paused and len(self._arrived) < MAX_WAITING_CHUNKS // 2:
            self._resume()
        return item

    def close(self) -> None:
        """Stop listening, and hang up on a function that is streaming: its next write fails."""
        super().close()
        if self._is_paused:
            self._resume()

    def deliver(self, data: bytes) -> None:
        """Hand over a chunk. When many wait, its connection is paused, which in time stops the function."""
        self._put(Chunk(data, time.monotonic_ns()))
        if len(self._arrived) >= MAX_WAITING_CHUNKS and not self._is_paused and not self.is_closed:
            with self._transport_lock:
                if self._transport is not None:
                    self._is_paused = True
                    self._transport.pause()

    def _resume(self) -> None:
        self._is_paused = False
        with self._transport_lock:
            if self._transport is not None:
                self._transport.resume()

    def _put(self, item: Chunk | End) -> None:
        if threading.get_ident() == self._thread_id:
            self._arrive(item)
            return
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._arrive, item)

    def _arrive(self, item: Chunk | End) -> None:
        if self.is_over:
            return
        if isinstance(item, End):
            item = self._timeout or item
            self.is_over = True
            self._timer.cancel()
            self.on_over(item.error)
        self._arrived.append(item)
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)

    def _time_out(self) -> None:
        if not self.is_over:
            self._timeout = End(timeout_error(self))  # whatever the killed process's end would say
            self.close()
            self.on_timeout()  # first: at the end the process is looked at, and must not seem to be of use
            self._arrive(self._timeout)
