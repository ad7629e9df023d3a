# SPDX-License-Identifier: Apache-2.0
"""HTTP requests → calls of the function in this process, each on a thread, and its answer back as it comes.

It stands where the host has a pool of processes: what the gateway awaits is an invocation all the same.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from time import monotonic_ns
from typing import Any, Protocol

from quickthaw.handler.function import Context
from quickthaw.handler.stream import to_json
from quickthaw.snapshot.errors import FunctionError
from quickthaw.snapshot.host.asgi import Message, Receive, Send
from quickthaw.snapshot.host.async_invocation import AsyncInvocation
from quickthaw.snapshot.host.gateway import Gateway
from quickthaw.snapshot.streaming import StreamedResponse

# Beyond those that compute or wait for a place: for what is answered at once, such as a refusal.
_MORE_THREADS = 16


class AfterAnswers(threading.local):
    """What each thread has still to do when the answer that it is giving has left."""

    def __init__(self) -> None:
        self._tasks: list[Callable[[], object]] = []

    def defer(self, task: Callable[[], object]) -> None:
        """Do it later, on this thread."""
        self._tasks.append(task)

    def run(self) -> None:
        """The answer has left."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task()


class Answerer(Protocol):
    """The function."""

    def answer(self, event: object, context: Context) -> Any: ...


class Callers:
    """An ASGI application: every request is an event for the function. To be used within `with`."""

    def __init__(self, function: Answerer, after: AfterAnswers, n_threads: int, timeout_s: float) -> None:
        self._function = function
        self._after = after
        self._timeout_s = timeout_s
        self._gateway = Gateway(self)
        self._threads = ThreadPoolExecutor(n_threads + _MORE_THREADS, thread_name_prefix="request")

    async def __aenter__(self) -> Callers:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request."""
        await self._gateway(scope, receive, send)

    async def stop(self) -> None:
        """Nothing is broken off: what was begun is answered."""

    async def invoke(self, event: bytes, trace_id: str | None = None) -> AsyncInvocation:
        """Have the function answer `event`."""
        invocation = AsyncInvocation(event, self._timeout_s, trace_id)
        self._threads.submit(self._run, invocation)
        return invocation

    def _run(self, invocation: AsyncInvocation) -> None:
        try:
            self._answer(invocation)
        except Exception as exc:  # the function has logged it
            invocation.finish(FunctionError(type(exc).__name__, str(exc)))
        else:
            invocation.finish()
        finally:
            self._after.run()

    def _answer(self, invocation: AsyncInvocation) -> None:
        reader = _Reader()
        invocation.attach(reader)
        result = self._function.answer(json.loads(invocation.event), _RequestContext(invocation))
        if not isinstance(result, StreamedResponse):
            invocation.content_type = "application/json"
            invocation.deliver(to_json(result).encode())
            return
        invocation.content_type, invocation.is_streamed = result.content_type, True
        with closing(result):
            for chunk in result:
                reader.wait()
                if invocation.is_closed:
                    return
                invocation.deliver(chunk)


class _RequestContext:
    """What Lambda's runtime client would say of this invocation."""

    def __init__(self, invocation: AsyncInvocation) -> None:
        self.aws_request_id = invocation.request_id
        self._invocation = invocation
        self._end_ns = monotonic_ns() + int(invocation.timeout_s * 1e9)

    def get_remaining_time_in_millis(self) -> int:
        return max(0, self._end_ns - monotonic_ns()) // 1_000_000

    def is_wanted(self) -> bool:
        """Whether the client is still there, and the deadline ahead."""
        return not self._invocation.is_closed


class _Reader:
    """The client's side of a stream: slow, it has its answer wait; gone, it does not."""

    def __init__(self) -> None:
        self._is_ready = threading.Event()
        self._is_ready.set()

    def wait(self) -> None:
        """Until the client has read enough, or has gone."""
        self._is_ready.wait()

    def pause(self) -> None:
        self._is_ready.clear()

    def resume(self) -> None:
        self._is_ready.set()

    reset = close = resume

    def write(self, data: bytes) -> None:
        """Nothing is written to it but by the invocation's own reader."""
