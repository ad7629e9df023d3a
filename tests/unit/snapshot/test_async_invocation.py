# SPDX-License-Identifier: Apache-2.0
"""An answer on its way to who awaits it on an event loop, whoever delivers it."""

import asyncio
import threading
import time
from collections.abc import Callable

import pytest

from quickthaw.snapshot.errors import FunctionError, FunctionTimeoutError
from quickthaw.snapshot.host.async_invocation import AsyncInvocation


async def _read(invocation: AsyncInvocation) -> list[bytes]:
    return [chunk.data async for chunk in invocation]


class FakeTransport:
    """A connection that notes what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def write(self, data: bytes) -> None:
        raise AssertionError(data)

    def close(self) -> None:
        self.told.append("close")

    def reset(self) -> None:
        self.told.append("reset")

    def pause(self) -> None:
        self.told.append("pause")

    def resume(self) -> None:
        self.told.append("resume")


def _in_thread(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_chunks_come_in_order_and_then_the_end() -> None:
    async def run() -> list[bytes]:
        invocation = AsyncInvocation(b"{}", timeout_s=10)

        def deliver() -> None:
            for n in range(500):  # more than there is room for at once
                invocation.deliver(b"%d" % n)
            invocation.finish()
            invocation.finish(FunctionError("E", "only the first end counts"))

        thread = _in_thread(deliver)
        received = await _read(invocation)
        assert invocation.is_over
        await asyncio.to_thread(thread.join)
        return received

    assert asyncio.run(run()) == [b"%d" % n for n in range(500)]


def test_a_slow_reader_pauses_the_connection() -> None:
    transport = FakeTransport()

    async def run() -> None:
        invocation = AsyncInvocation(b"{}", timeout_s=10)
        invocation.attach(transport)
        for n in range(100):
            invocation.deliver(b"%d" % n)
        assert transport.told == ["pause"]
        invocation.finish()
        assert len(await _read(invocation)) == 100

    asyncio.run(run())
    assert transport.told == ["pause"]  # once it is over there is nothing to go on with


def test_a_reader_who_catches_up_lets_it_go_on() -> None:
    transport = FakeTransport()

    async def run() -> None:
        invocation = AsyncInvocation(b"{}", timeout_s=10)
        invocation.attach(transport)
        for n in range(100):
            invocation.deliver(b"%d" % n)
        for n in range(80):
            assert (await anext(invocation)).data == b"%d" % n
        assert transport.told == ["pause", "resume"]
        for _ in range(100):
            invocation.deliver(b"x")
        invocation.close()

    asyncio.run(run())
    assert transport.told == ["pause", "resume", "pause", "reset", "resume"]


def test_the_deadline_is_the_reason_though_the_killed_process_ends_it() -> None:
    async def run() -> None:
        invocation = AsyncInvocation(b"{}", timeout_s=0.01)
        invocation.on_timeout = lambda: invocation.finish(FunctionError("Runtime.ExitError", "killed"))
        with pytest.raises(FunctionTimeoutError):
            await anext(invocation)

    asyncio.run(run())


def test_an_error_comes_where_the_answer_broke_off() -> None:
    async def run() -> None:
        invocation = AsyncInvocation(b"{}", timeout_s=10)
        invocation.deliver(b"half")
        invocation.finish(FunctionError("E", "broke"))
        assert (await anext(invocation)).data == b"half"
        with pytest.raises(FunctionError, match="E: broke"):
            await anext(invocation)
        assert await _read(invocation) == []

    asyncio.run(run())


def test_the_deadline_ends_it_and_kills() -> None:
    killed = []

    async def run() -> None:
        invocation = AsyncInvocation(b"{}", timeout_s=0.01)
        invocation.on_timeout = lambda: killed.append(time.monotonic())
        with pytest.raises(FunctionTimeoutError, match=r"timed out after 0\.01 seconds"):
            await anext(invocation)
        assert invocation.is_over
        assert invocation.is_closed

    asyncio.run(run())
    assert len(killed) == 1


def test_an_answer_in_time_is_not_killed() -> None:
    killed = []

    async def run() -> None:
        invocation = AsyncInvocation(b"{}", timeout_s=0.05)
        invocation.on_timeout = lambda: killed.append(True)
        invocation.finish()
        assert await _read(invocation) == []
        # This one's deadline is after the other's.
        with pytest.raises(FunctionTimeoutError):
            await anext(AsyncInvocation(b"{}", timeout_s=0.06))

    asyncio.run(run())
    assert killed == []


@pytest.mark.parametrize("is_attached_first", [True, False])
def test_closing_hangs_up_whoever_comes_first(is_attached_first: bool) -> None:
    transport = FakeTransport()

    async def run() -> None:
        invocation = AsyncInvocation(b"{}", timeout_s=10)
        steps: list[Callable[[], object]] = [lambda: invocation.attach(transport), invocation.close]
        for step in steps if is_attached_first else reversed(steps):
            step()
        invocation.finish()

    asyncio.run(run())
    assert transport.told == ["reset"]


def test_the_end_is_told_before_it_is_read() -> None:
    told: list[FunctionError | None] = []

    async def run() -> None:
        invocation = AsyncInvocation(b"{}", timeout_s=10)
        invocation.on_over = told.append
        error = FunctionError("E", "broke")
        invocation.deliver(b"unread")
        invocation.finish(error)
        invocation.finish()
        assert (await anext(invocation)).data == b"unread"
        with pytest.raises(FunctionError):
            await anext(invocation)
        assert told == [error]

    asyncio.run(run())


def test_the_process_is_killed_before_the_end_is_told() -> None:
    steps = []

    async def run() -> None:
        invocation = AsyncInvocation(b"{}", timeout_s=0.01)
        invocation.on_timeout = lambda: steps.append("killed")
        invocation.on_over = lambda error: steps.append(type(error).__name__)
        with pytest.raises(FunctionTimeoutError):
            await anext(invocation)

    asyncio.run(run())
    assert steps == ["killed", "FunctionTimeoutError"]


def test_closing_after_the_end_hangs_up_nobody() -> None:
    transport = FakeTransport()

    async def run() -> None:
        invocation = AsyncInvocation(b"{}", timeout_s=10)
        invocation.attach(transport)
        invocation.finish()
        invocation.close()

    asyncio.run(run())
    assert transport.told == []  # the connection may carry the next answer


def test_a_closed_one_holds_nobody_up() -> None:
    async def run() -> None:
        invocation = AsyncInvocation(b"{}", timeout_s=10)

        def deliver() -> None:
            for _ in range(500):
                invocation.deliver(b"x")

        thread = _in_thread(deliver)
        invocation.close()
        await asyncio.to_thread(thread.join, 10)
        assert not thread.is_alive()

    asyncio.run(run())


def test_a_late_chunk_finds_no_loop_and_no_harm() -> None:
    async def make() -> AsyncInvocation:
        return AsyncInvocation(b"{}", timeout_s=10)

    invocation = asyncio.run(make())
    invocation.deliver(b"late")
    invocation.finish()
