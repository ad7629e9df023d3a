# SPDX-License-Identifier: Apache-2.0
"""The instances of one function, and who may use one when.

An instance has one request at a time. A request takes the idle one that was used last; if none is idle, one
is started, up to a number; if no more may be, it waits for its turn, and when enough wait, it is refused.
What is idle for long ends, the one used longest ago first; what has died is replaced when it is needed.

    request ─▶ idle? ──yes──▶ busy ──▶ answered ──▶ the next who waits, or idle ──long──▶ ended
                 │ no                     │ died
                 └▶ waits ◀── ready ◀── starting, while fewer start than wait
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

from quickthaw.snapshot.errors import (
    FunctionError,
    FunctionInitError,
    HostStoppedError,
    SnapshotError,
    TooManyRequestsError,
)
from quickthaw.snapshot.host.async_invocation import AsyncInvocation
from quickthaw.snapshot.host.log_tail import LogTail
from quickthaw.snapshot.host.metrics import HostMetrics
from quickthaw.snapshot.host.worker import Activity, Spawn, Worker

_TIDY_S = 1.0
_MAX_BACKOFF_S = 60.0


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """How much there may be of what.

    Units: `timeout_s` bounds an init, and each request. `min_warm` instances are kept, requests or not.
    """

    timeout_s: float = 60.0
    max_instances: int = 1
    min_warm: int = 0
    idle_timeout_s: float = 300.0
    max_waiting: int = 256


def _ignore(*_: object) -> None:
    pass


class Pool:
    """To be used on one event loop. An async context manager: at the end of it there is no instance.

    `spawn` makes a process. `on_start` is told of each start: the worker, and the error of one that failed.
    """

    def __init__(
        self,
        spawn: Spawn,
        limits: PoolLimits | None = None,
        on_start: Callable[[Worker, SnapshotError | None], object] = _ignore,
        metrics: HostMetrics | None = None,
    ) -> None:
        self.limits = limits or PoolLimits()
        self.metrics = metrics or HostMetrics()
        self._spawn = spawn
        self._on_start = on_start
        self._numbers = count(1)
        self._workers: set[Worker] = set()
        self._idle: list[Worker] = []  # what was used last is at the end
        self._waiting: deque[asyncio.Future[Worker]] = deque()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._threads = ThreadPoolExecutor(self.limits.max_instances + 1, "pool")
        self._is_stopped = False
        self._backoff_s = 0.0
        self._may_warm_at = 0.0

    async def __aenter__(self) -> "Pool":
        self._housekeeping = asyncio.create_task(self._keep_house())
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.stop()

    # --- how it stands ---

    @property
    def workers(self) -> list[Worker]:
        """Every instance, the oldest first."""
        return sorted(self._workers, key=lambda worker: worker.number)

    @property
    def n_waiting(self) -> int:
        """How many requests wait for an instance to be free, but for those that one is being started for."""
        return max(0, len(self._waiting) - self._n_starting)

    @property
    def is_busy(self) -> bool:
        """Whether anybody is served or waits."""
        return bool(self._waiting) or any(worker.activity is Activity.BUSY for worker in self._workers)

    @property
    def is_full(self) -> bool:
        """Whether one more request would be refused."""
        has_room = bool(self._idle) or len(self._workers) < self.limits.max_instances
        return not has_room and self.n_waiting >= self.limits.max_waiting

    @property
    def _n_starting(self) -> int:
        return sum(worker.activity is Activity.STARTING for worker in self._workers)

    # --- requests ---

    async def invoke(
        self,
        event: bytes,
        trace_id: str | None = None,
        client_context: str | None = None,
        log: LogTail | None = None,
    ) -> AsyncInvocation:
        """Wait for an instance that is free, and send it `event`. `log` is complete when the answer is.

        Raises: TooManyRequestsError, HostStoppedError; FunctionError as the start failed.
        """
        asked_ns = time.monotonic_ns()
        try:
            worker = self._take_idle() or await self._wait_for_turn()
        except SnapshotError as exc:
            self.metrics.add_request(time.monotonic_ns() - asked_ns, exc)
            raise
        invocation = AsyncInvocation(event, self.limits.timeout_s, trace_id)
        invocation.client_context = client_context
        invocation.on_over = partial(self._release, worker, invocation, asked_ns)
        try:
            worker.run(invocation, log)
        except FunctionError as exc:
            invocation.finish(exc)  # which is told like any other end
        return invocation

    def _take_idle(self) -> Worker | None:
        while self._idle:
            worker = self._idle.pop()
            if worker.is_alive:
                return worker
            self._remove(worker)
        return None

    async def _wait_for_turn(self) -> Worker:
        if self._is_stopped:
            raise HostStoppedError
        if self.is_full:
            raise TooManyRequestsError(self.n_waiting)
        turn: asyncio.Future[Worker] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        self._grow()
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                with suppress(ValueError):
                    self._waiting.remove(turn)
            elif turn.exception() is None:
                self._give(turn.result())  # it came while its taker left
            raise

    def _give(self, worker: Worker) -> None:
        """Let the first who waits have it; it rests if nobody does."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                worker.activity = Activity.BUSY
                turn.set_result(worker)
                return
        worker.rest()
        self._idle.append(worker)

    def _release(
        self, worker: Worker, invocation: AsyncInvocation, asked_ns: int, error: FunctionError | None
    ) -> None:
        self.metrics.add_request(time.monotonic_ns() - asked_ns, error)
        worker.end(invocation)
        if worker.is_alive:
            self._give(worker)
        else:
            self._remove(worker)
            self._grow()

    # --- instances ---

    async def warm(self) -> None:
        """Start as many as are kept, and wait for them. Raises: FunctionError as the first of them failed."""
        n_missing = self.limits.min_warm - len(self._workers)
        for error in await asyncio.gather(*(self._begin_start() for _ in range(n_missing))):
            if error is not None:
                raise error

    def _grow(self) -> None:
        """Start what those who wait need and there may be."""
        while self._n_starting < len(self._waiting) and len(self._workers) < self.limits.max_instances:
            self._begin_start()

    def _begin_start(self) -> "asyncio.Task[SnapshotError | None]":
        worker = Worker(next(self._numbers))
        self._workers.add(worker)
        return self._in_background(self._start(worker))

    async def _start(self, worker: Worker) -> SnapshotError | None:
        """Start it and give it to who waits. A failure is told, to the first of them too, and returned."""
        loop = asyncio.get_running_loop()
        error: SnapshotError | None = await self._in_thread(self._try_start, worker, loop)
        self.metrics.add_start(None if error else worker.start_ns)
        if not self._is_stopped:
            self._on_start(worker, error)
        if error is None and not self._is_stopped:
            self._backoff_s = 0.0
            self._give(worker)
            return None
        self._backoff_s = min(max(1.0, 2 * self._backoff_s), _MAX_BACKOFF_S)
        self._may_warm_at = time.monotonic() + self._backoff_s
        self._remove(worker)
        while self._waiting and error is not None:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_exception(error)
                break
        self._grow()
        return error

    def _try_start(self, worker: Worker, loop: asyncio.AbstractEventLoop) -> SnapshotError | None:
        try:
            worker.start(self._spawn, loop, self.limits.timeout_s, lambda: self._is_stopped)
        except SnapshotError as exc:
            worker.kill()
            return exc
        except OSError as exc:
            return FunctionInitError("Sandbox.StartFailed", f"cannot make a process: {exc}")
        return None

    def _remove(self, worker: Worker) -> None:
        """It is no more of this pool; its process ends."""
        self._workers.discard(worker)
        if not self._is_stopped:  # `stop` sees to all of them
            worker.kill()
            self._in_background(self._in_thread(worker.stop))

    async def _keep_house(self) -> None:
        while True:
            await asyncio.sleep(min(_TIDY_S, self.limits.idle_timeout_s / 4))
            self._tidy()

    def _tidy(self) -> None:
        for worker in [worker for worker in self._idle if not worker.is_alive]:
            self._idle.remove(worker)
            self._remove(worker)
        idle_since_ns = time.monotonic_ns() - int(self.limits.idle_timeout_s * 1e9)
        while (
            self._idle
            and len(self._workers) > self.limits.min_warm
            and self._idle[0].idle_since_ns < idle_since_ns
        ):
            self._remove(self._idle.pop(0))
        if time.monotonic() >= self._may_warm_at:
            for _ in range(len(self._workers), self.limits.min_warm):
                self._begin_start()

    # --- the end ---

    async def stop(self) -> None:
        """End every instance and every request."""
        if self._is_stopped:
            return
        self._is_stopped = True
        self._housekeeping.cancel()
        for turn in self._waiting:
            if not turn.done():
                turn.set_exception(HostStoppedError())
        self._waiting.clear()
        self._idle.clear()
        workers = list(self._workers)
        for worker in workers:
            worker.kill()
        await asyncio.gather(*self._tasks, return_exceptions=True)  # starts, which have failed by now
        await asyncio.gather(*(self._in_thread(worker.stop) for worker in workers))
        self._threads.shutdown(wait=False)

    def _in_background(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _in_thread(self, work: Callable[..., Any], *arguments: object) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)
