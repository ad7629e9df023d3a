# SPDX-License-Identifier: Apache-2.0
"""An invocation whose answer is awaited on an event loop; what delivers it stays on threads."""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from quickthaw.snapshot.errors import FunctionError
from quickthaw.snapshot.host.invocation import Chunk, End, Invocation, timeout_error


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
        self._arrived: deque[Chunk | End] = deque()
        self._arrival: asyncio.Future[None] | None = None
        self._timer = self._loop.call_later(timeout_s, self._time_out)
        self.on_over: Callable[[FunctionError | None], object] = _ignore
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
        self._room.release()
        return item

    def _put(self, item: Chunk | End) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._arrive, item)

    def _arrive(self, item: Chunk | End) -> None:
        if self.is_over:
            return
        if isinstance(item, End):
            self.is_over = True
            self._timer.cancel()
            self.on_over(item.error)
        self._arrived.append(item)
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)

    def _time_out(self) -> None:
        if not self.is_over:
            self.close()
            self.on_timeout()  # first: at the end the process is looked at, and must not seem to be of use
            self._arrive(End(timeout_error(self)))
