# SPDX-License-Identifier: Apache-2.0
"""Who may use which instance when, with instances that are not processes."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from quickthaw.snapshot.errors import (
    FunctionExitedError,
    FunctionInitError,
    HostStoppedError,
    SnapshotError,
    TooManyRequestsError,
)
from quickthaw.snapshot.host.async_invocation import AsyncInvocation
from quickthaw.snapshot.host.instance import State
from quickthaw.snapshot.host.pool import Pool, PoolLimits
from quickthaw.snapshot.host.worker import Activity, Worker

TIMEOUT_S = 20.0


class FakeInstance:
    """Answers when it is told to."""

    start_kind = "fake"
    pid = 1
    spawned_ns = 0

    def __init__(self, error: SnapshotError | None, may_be_ready: threading.Event) -> None:
        self._error = error
        self._may_be_ready = may_be_ready
        self.state = State.STARTING
        self.is_stopped = False
        self.invocation: AsyncInvocation | None = None

    def wait_ready(self, timeout_s: float) -> int:
        assert timeout_s > 0
        while not self._may_be_ready.wait(0.005):
            if self.state is State.DEAD:
                raise FunctionExitedError("Runtime.ExitError", "killed")
        if self._error is not None:
            self.state = State.DEAD
            raise self._error
        self.state = State.READY
        return time.monotonic_ns()

    def run(self, invocation: AsyncInvocation) -> None:
        assert self.invocation is None, "two requests at a time"
        invocation.on_timeout = self.kill
        self.invocation = invocation

    def answer(self) -> None:
        assert self.invocation is not None
        invocation, self.invocation = self.invocation, None
        invocation.finish()

    def kill(self) -> None:
        self.state = State.DEAD
        if self.invocation is not None:
            invocation, self.invocation = self.invocation, None
            invocation.finish(FunctionExitedError("Runtime.ExitError", "killed"))

    def stop(self) -> None:
        self.kill()
        self.is_stopped = True

    def read_output(self) -> None:
        pass


class Stage:
    """A pool, its instances, and what it has told."""

    def __init__(self, **limits: Any) -> None:
        self.instances: list[FakeInstance] = []
        self.told: list[SnapshotError | None] = []
        self.errors: list[SnapshotError] = []  # of the next starts
        self.may_be_ready = threading.Event()
        self.may_be_ready.set()
        limits = {"timeout_s": TIMEOUT_S, **limits}
        self.pool = Pool(self._spawn, PoolLimits(**limits), self._tell)

    def _spawn(self, *_: object) -> Any:
        instance = FakeInstance(self.errors.pop(0) if self.errors else None, self.may_be_ready)
        self.instances.append(instance)
        return instance

    def _tell(self, worker: Worker, error: SnapshotError | None) -> None:
        del worker
        self.told.append(error)

    def ask(self) -> "asyncio.Task[AsyncInvocation]":
        return asyncio.create_task(self.pool.invoke(b"{}"))

    async def asked(self) -> FakeInstance:
        """Ask; return who got it."""
        invocation = await self.ask()
        return next(each for each in self.instances if each.invocation is invocation)

    async def answered(self) -> FakeInstance:
        """Ask and have it answered; return by whom."""
        instance = await self.asked()
        instance.answer()
        await until(lambda: not self.pool.is_busy)
        return instance


@asynccontextmanager
async def _stage(**limits: Any) -> AsyncIterator[Stage]:
    stage = Stage(**limits)
    async with stage.pool:
        yield stage
    assert all(each.is_stopped for each in stage.instances)


async def until(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not is_so():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.002)


def _run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 2 * TIMEOUT_S))  # type: ignore[arg-type]


def test_as_many_as_are_needed_and_not_more_than_may_be() -> None:
    async def test() -> None:
        async with _stage(max_instances=3) as stage:
            assert stage.instances == []
            first = await stage.answered()
            assert await stage.answered() is first
            busy = [await stage.asked() for _ in range(3)]
            assert len(set(map(id, busy))) == len(stage.instances) == 3

            fourth = stage.ask()
            await until(lambda: stage.pool.n_waiting == 1)
            busy[1].answer()
            await fourth
            assert busy[1].invocation is fourth.result()
            assert len(stage.instances) == 3

    _run(test)


def test_the_one_that_was_used_last_is_taken() -> None:
    async def test() -> None:
        async with _stage(max_instances=3) as stage:
            busy = [await stage.asked() for _ in range(3)]
            for n in (2, 0, 1):
                busy[n].answer()
                await until(lambda n=n: busy[n].invocation is None)  # type: ignore[misc]
                await asyncio.sleep(0)
            await until(lambda: not stage.pool.is_busy)
            assert await stage.asked() is busy[1]
            assert await stage.asked() is busy[0]
            assert await stage.asked() is busy[2]

    _run(test)


def test_those_who_wait_take_their_turns_in_order() -> None:
    async def test() -> None:
        async with _stage() as stage:
            instance = await stage.asked()
            waiting = [stage.ask() for _ in range(5)]
            for each in waiting:
                instance.answer()
                assert await each is instance.invocation

    _run(test)


def test_more_than_may_wait_are_refused_but_a_start_is_waited_for() -> None:
    async def test() -> None:
        async with _stage(max_instances=2, max_waiting=1) as stage:
            stage.may_be_ready.clear()
            starting = [stage.ask() for _ in range(2)]
            await until(lambda: len(stage.instances) == 2)
            assert stage.pool.n_waiting == 0
            assert not stage.pool.is_full
            third = stage.ask()
            await until(lambda: stage.pool.n_waiting == 1)
            assert stage.pool.is_full
            with pytest.raises(TooManyRequestsError):
                await stage.ask()
            stage.may_be_ready.set()
            await asyncio.gather(*starting)
            stage.instances[0].answer()
            await third
            assert stage.pool.metrics.n_requests["refused"] == 1

    _run(test)


def test_no_waiting_at_all() -> None:
    async def test() -> None:
        async with _stage(max_waiting=0) as stage:
            await stage.asked()
            with pytest.raises(TooManyRequestsError):
                await stage.ask()

    _run(test)


def test_who_leaves_the_queue_keeps_nobody_from_it() -> None:
    async def test() -> None:
        async with _stage() as stage:
            instance = await stage.asked()
            leaver, stayer = stage.ask(), stage.ask()
            await until(lambda: stage.pool.n_waiting == 2)
            leaver.cancel()
            await until(lambda: stage.pool.n_waiting == 1)
            instance.answer()
            assert await stayer is instance.invocation

    _run(test)


def test_who_leaves_just_as_his_turn_comes_passes_it_on() -> None:
    async def test() -> None:
        async with _stage() as stage:
            instance = await stage.asked()
            leaver, stayer = stage.ask(), stage.ask()
            await until(lambda: stage.pool.n_waiting == 2)
            instance.answer()
            leaver.cancel()  # it is his turn, but he does not know yet
            assert await stayer is instance.invocation
            assert leaver.cancelled()

    _run(test)


def test_the_dead_are_replaced() -> None:
    async def test() -> None:
        async with _stage() as stage:
            first = await stage.answered()
            first.kill()
            second = await stage.asked()
            assert second is not first
            second.kill()  # while it is asked
            third = await stage.answered()
            assert third is not second
            await until(lambda: first.is_stopped and second.is_stopped)
            assert len(stage.pool.workers) == 1
            assert stage.pool.metrics.n_requests == {"answered": 2, "exited": 1}

    _run(test)


def test_a_start_that_fails_fails_one_request_and_is_told() -> None:
    async def test() -> None:
        async with _stage() as stage:
            error = FunctionInitError("E", "no init")
            stage.errors = [error]
            stage.may_be_ready.clear()
            first, second = stage.ask(), stage.ask()
            await until(lambda: len(stage.instances) == 1)
            stage.may_be_ready.set()
            with pytest.raises(FunctionInitError, match="no init"):
                await first
            await second
            assert stage.told == [error, None]
            assert stage.pool.metrics.n_starts == {"failed": 1, "ready": 1}

    _run(test)


def test_what_cannot_be_spawned_is_a_failed_start() -> None:
    async def test() -> None:
        def spawn(*_: object) -> Any:
            raise OSError("no more processes")

        async with Pool(spawn) as pool:
            with pytest.raises(FunctionInitError, match="no more processes"):
                await pool.invoke(b"{}")

    _run(test)


def test_as_many_as_are_to_be_kept_are_kept() -> None:
    async def test() -> None:
        async with _stage(max_instances=4, min_warm=2, idle_timeout_s=0.1) as stage:
            await stage.pool.warm()
            assert len(stage.instances) == 2
            for busy in [await stage.asked() for _ in range(4)]:
                busy.answer()
            await until(lambda: len(stage.pool.workers) == 2)
            await until(lambda: sum(each.is_stopped for each in stage.instances) == 2)
            for each in stage.instances:
                each.kill()
            await until(lambda: sum(each.state is State.READY for each in stage.instances) == 2)
            assert len(stage.instances) == 6

    _run(test)


def test_what_is_busy_is_not_idle() -> None:
    async def test() -> None:
        async with _stage(max_instances=2, idle_timeout_s=0.05) as stage:
            busy = await stage.asked()
            (await stage.asked()).answer()
            await until(lambda: len(stage.pool.workers) == 1)
            assert busy.state is State.READY
            assert stage.pool.workers[0].activity is Activity.BUSY

    _run(test)


def test_warming_fails_as_the_first_start_did() -> None:
    async def test() -> None:
        async with _stage(min_warm=1) as stage:
            stage.errors = [FunctionInitError("E", "no init")]
            with pytest.raises(FunctionInitError, match="no init"):
                await stage.pool.warm()

    _run(test)


def test_the_end_ends_everything() -> None:
    async def test() -> None:
        stage = Stage(max_instances=2)
        async with stage.pool:
            served = await stage.ask()
            stage.may_be_ready.clear()
            starting, waiting = stage.ask(), stage.ask()
            await until(lambda: stage.pool.n_waiting == 1 and len(stage.instances) == 2)
        for each in (starting, waiting):
            with pytest.raises(HostStoppedError):
                await each
        with pytest.raises(FunctionExitedError):
            await anext(served)
        assert [each.is_stopped for each in stage.instances] == [True, True]
        with pytest.raises(HostStoppedError):
            await stage.pool.invoke(b"{}")

    _run(test)


def test_a_deadline_costs_the_instance() -> None:
    async def test() -> None:
        async with _stage(timeout_s=0.2) as stage:
            first = await stage.asked()
            second = await stage.asked()  # after the deadline of the first
            assert second is not first
            assert first.state is State.DEAD

    _run(test)
