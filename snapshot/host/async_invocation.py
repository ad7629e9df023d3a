# SPDX-License-Identifier: Apache-2.0
"""An invocation whose answer is awaited on an event loop; what delivers it stays on threads."""

import asyncio
from contextlib import suppress

from quickthaw.snapshot.host.invocation import Chunk, End, Invocation, timeout_error


class AsyncInvocation(Invocation):
    """Iterate with `async for`; to be made on the loop.

    `over` is done when the function is: it has answered, or failed, or was killed at the deadline, however
    much of the answer has still to be read.
    """

    def __init__(self, event: bytes, timeout_s: float, trace_id: str | None = None) -> None:
        super().__init__(event, timeout_s, trace_id)
        self._loop = asyncio.get_running_loop()
        self._arrived: asyncio.Queue[Chunk | End] = asyncio.Queue()
        self._timer = self._loop.call_later(timeout_s, self._time_out)
        self.over: asyncio.Future[None] = self._loop.create_future()

    def __aiter__(self) -> "AsyncInvocation":
        return self

    async def __anext__(self) -> Chunk:
        """Wait for the next chunk.

        Raises: FunctionError, and FunctionTimeoutError at the deadline.
        """
        if self._is_over:
            raise StopAsyncIteration
        item = await self._arrived.get()
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
        if self.over.done():
            return
        self._arrived.put_nowait(item)
        if isinstance(item, End):
            self._timer.cancel()
            self.over.set_result(None)

    def _time_out(self) -> None:
        self._arrive(End(timeout_error(self)))
        self.close()
        self.on_timeout()
