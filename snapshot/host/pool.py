# SPDX-License-Identifier: Apache-2.0
"""The instances of one function, and who may use one when.

There is one instance. It is started when it is first needed and when it has died, and has one request at a
time; others wait their turn, up to a number.
"""

import asyncio
import threading
from collections.abc import Callable

from quickthaw.snapshot.errors import FunctionError, HostStoppedError, TooManyRequestsError
from quickthaw.snapshot.host.async_invocation import AsyncInvocation
from quickthaw.snapshot.host.instance import Instance, State

_MAX_WAITING = 32


class Pool:
    """A context manager: at the end of it there is no instance.

    `spawn` makes a process; `on_start` is told of each that is ready, and when (monotonic clock, ns).
    `n_waiting` requests wait for their turn. Units: `timeout_s` bounds an init, and each request.
    """

    def __init__(
        self,
        spawn: Callable[[], Instance],
        timeout_s: float,
        on_start: Callable[[Instance, int], object],
        max_waiting: int = _MAX_WAITING,
    ) -> None:
        self._spawn = spawn
        self._timeout_s = timeout_s
        self._on_start = on_start
        self._max_waiting = max_waiting
        self.n_waiting = 0
        self._turn = asyncio.Semaphore()
        self._lock = threading.Lock()
        self._instance: Instance | None = None
        self._is_stopped = False

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    @property
    def is_busy(self) -> bool:
        """Whether a request has its turn."""
        return self._turn.locked()

    async def invoke(self, event: bytes, trace_id: str | None = None) -> AsyncInvocation:
        """Wait for a turn and for an instance that is ready, and send it `event`.

        Raises: TooManyRequestsError, HostStoppedError; FunctionError as the start failed.
        """
        await self._take_turn()
        try:
            instance = self._instance
            if instance is None or instance.state is not State.READY:
                instance = await asyncio.to_thread(self.start)
            invocation = instance.run(AsyncInvocation(event, self._timeout_s, trace_id))
        except BaseException:
            self._turn.release()
            raise
        invocation.over.add_done_callback(lambda _: self._turn.release())
        return invocation

    def start(self) -> Instance:
        """Return the instance when it is ready; a new one, unless there is one alive. Blocks.

        Raises: HostStoppedError, FunctionInitError, FunctionExitedError
        """
        with self._lock:
            if self._is_stopped:
                raise HostStoppedError
            instance = self._instance
            is_new = False
            if instance is None or instance.state is State.DEAD:
                if instance is not None:
                    instance.stop()
                self._instance = instance = self._spawn()
                is_new = True
        try:
            ready_ns = instance.wait_ready(self._timeout_s)
        except FunctionError:
            instance.kill()
            raise
        if is_new:
            self._on_start(instance, ready_ns)
        return instance

    def stop(self) -> None:
        """End the instance and every request; from any thread."""
        with self._lock:
            self._is_stopped = True
            if self._instance is not None:
                self._instance.stop()

    async def _take_turn(self) -> None:
        if self._turn.locked() and self.n_waiting >= self._max_waiting:
            raise TooManyRequestsError(self.n_waiting)
        self.n_waiting += 1
        try:
            await self._turn.acquire()
        finally:
            self.n_waiting -= 1
