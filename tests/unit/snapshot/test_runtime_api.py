# SPDX-License-Identifier: Apache-2.0
"""The Runtime API as a function sees it, request by request."""

import asyncio
import json
import threading
import time
from base64 import b64encode
from collections.abc import Iterator
from http.client import HTTPConnection
from socket import create_connection

import pytest

from quickthaw.snapshot.errors import (
    FunctionError,
    FunctionExitedError,
    FunctionInitError,
    FunctionTimeoutError,
)
from quickthaw.snapshot.host.invocation import Invocation
from quickthaw.snapshot.host.runtime_api import RuntimeApi

RUNTIME = "/2018-06-01/runtime"


class _LoopApi(RuntimeApi):
    """Served on an event loop, where it is also to be sent its events."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self._loop = loop

    def send(self, invocation: Invocation) -> None:
        async def send() -> None:
            super(_LoopApi, self).send(invocation)

        asyncio.run_coroutine_threadsafe(send(), self._loop).result(10)


@pytest.fixture(params=["threads", "loop"])
def api(request: pytest.FixtureRequest) -> Iterator[RuntimeApi]:
    if request.param == "threads":
        api = RuntimeApi()
        yield api
        api.close()
        return
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        thread = threading.Thread(target=loop.run_forever)
        thread.start()
        api = _LoopApi(loop)
        yield api
        api.close()
        loop.call_soon_threadsafe(lambda: loop.call_later(0.01, loop.stop))  # when its connections are closed
        thread.join()


@pytest.fixture
def function(api: RuntimeApi) -> Iterator[HTTPConnection]:
    connection = HTTPConnection(api.address, timeout=10)
    yield connection
    connection.close()


def _ask(function: HTTPConnection, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
    function.request(method, RUNTIME + path, body)
    response = function.getresponse()
    return response.status, response.read()


def _send(api: RuntimeApi, event: bytes = b"{}", timeout_s: float = 10) -> Invocation:
    invocation = Invocation(event, timeout_s)
    api.send(invocation)
    return invocation


def _next(api: RuntimeApi, function: HTTPConnection, event: bytes = b"{}") -> tuple[Invocation, str]:
    """Start an invocation; return it and the path of its answers."""
    invocation = _send(api, event)
    status, body = _ask(function, "GET", "/invocation/next")
    assert (status, body) == (200, event)
    return invocation, f"/invocation/{invocation.request_id}"


def test_next_describes_the_invocation(api: RuntimeApi, function: HTTPConnection) -> None:
    invocation = Invocation(b'{"a": 1}', timeout_s=3, trace_id="Root=1-abc")
    api.send(invocation)
    function.request("GET", RUNTIME + "/invocation/next")
    response = function.getresponse()

    assert response.read() == b'{"a": 1}'
    assert response.headers["Content-Type"] == "application/json"
    assert response.headers["Lambda-Runtime-Aws-Request-Id"] == invocation.request_id
    assert response.headers["Lambda-Runtime-Trace-Id"] == "Root=1-abc"
    assert response.headers["Lambda-Runtime-Invoked-Function-Arn"].startswith("arn:aws:lambda:")
    remaining_ms = int(response.headers["Lambda-Runtime-Deadline-Ms"]) - time.time() * 1000
    assert 0 < remaining_ms <= 3000


def test_a_whole_answer(api: RuntimeApi, function: HTTPConnection) -> None:
    invocation, path = _next(api, function)

    status, body = _ask(function, "POST", f"{path}/response", b'"done"')

    assert (status, json.loads(body)) == (202, {"status": "OK"})
    assert [chunk.data for chunk in invocation] == [b'"done"']
    assert not invocation.is_streamed


def test_an_answer_in_chunks_with_an_error_behind_it(api: RuntimeApi, function: HTTPConnection) -> None:
    invocation, path = _next(api, function)
    document = b64encode(b'{"errorType": "E", "errorMessage": "broke", "stackTrace": ["line"]}')
    head = f"POST {RUNTIME}{path}/response HTTP/1.1\r\nTransfer-Encoding: chunked\r\n"
    head += "Lambda-Runtime-Function-Response-Mode: streaming\r\n\r\n"
    host, port = api.address.split(":")
    with create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(head.encode() + b"3;ext=1\r\none\r\n")
        assert next(invocation).data == b"one"  # before the rest exists
        connection.sendall(b"3\r\ntwo\r\n0\r\nLambda-Runtime-Function-Error-Type: E\r\n")
        connection.sendall(b"Lambda-Runtime-Function-Error-Body: " + document + b"\r\n\r\n")
        assert connection.recv(1000).startswith(b"HTTP/1.1 202 Accepted\r\n")

    assert next(invocation).data == b"two"
    with pytest.raises(FunctionError, match="E: broke") as failure:
        next(invocation)
    assert failure.value.stack_trace == ("line",)
    assert list(invocation) == []


def test_a_stream_that_breaks_off(api: RuntimeApi, function: HTTPConnection) -> None:
    invocation, path = _next(api, function)
    host, port = api.address.split(":")
    with create_connection((host, int(port)), timeout=10) as connection:
        head = f"POST {RUNTIME}{path}/response HTTP/1.1\r\nTransfer-Encoding: chunked\r\n"
        head += "Lambda-Runtime-Function-Response-Mode: streaming\r\n\r\n"
        connection.sendall(head.encode() + b"ff\r\nhalf")

    with pytest.raises(FunctionError, match=r"Runtime\.TruncatedResponse"):
        next(invocation)


def test_an_error_document(api: RuntimeApi, function: HTTPConnection) -> None:
    invocation, path = _next(api, function)

    status, _ = _ask(function, "POST", f"{path}/error", b'{"errorType": "T", "errorMessage": "m"}')

    assert status == 202
    with pytest.raises(FunctionError, match="T: m"):
        next(invocation)


def test_an_error_that_is_no_document_is_its_message(api: RuntimeApi, function: HTTPConnection) -> None:
    invocation, path = _next(api, function)
    _ask(function, "POST", f"{path}/error", b"plain \xff text")

    with pytest.raises(FunctionError, match="Unhandled: plain \N{REPLACEMENT CHARACTER} text"):
        next(invocation)


@pytest.mark.parametrize("answer", ["response", "error"])
def test_an_answer_to_another_event_is_refused(
    api: RuntimeApi, function: HTTPConnection, answer: str
) -> None:
    invocation, path = _next(api, function)

    status, body = _ask(function, "POST", f"/invocation/other/{answer}", b"{}")

    assert (status, json.loads(body)["errorType"]) == (400, "InvalidRequestID")
    assert _ask(function, "POST", f"{path}/response", b"1")[0] == 202
    assert _ask(function, "POST", f"{path}/response", b"2")[0] == 400  # once is enough
    assert [chunk.data for chunk in invocation] == [b"1"]


@pytest.mark.parametrize(("method", "path"), [("GET", "/nothing"), ("GET", "/invocation/1/response")])
def test_an_unknown_path(function: HTTPConnection, method: str, path: str) -> None:
    assert _ask(function, method, path)[0] == 404


def test_a_failed_init(api: RuntimeApi, function: HTTPConnection) -> None:
    _ask(function, "POST", "/init/error", b'{"errorType": "ImportError", "errorMessage": "no numpy"}')

    with pytest.raises(FunctionInitError, match="ImportError: no numpy"):
        api.wait_ready(10)
    with pytest.raises(FunctionInitError):
        _send(api)


def test_a_dead_process_ends_what_waits_for_it(api: RuntimeApi, function: HTTPConnection) -> None:
    current, _ = _next(api, function)
    queued = _send(api)

    api.fail(FunctionExitedError("Runtime.ExitError", "gone"))

    for invocation in (current, queued):
        with pytest.raises(FunctionExitedError, match="gone"):
            next(invocation)


def test_the_deadline_ends_the_wait(api: RuntimeApi) -> None:
    invocation = _send(api, timeout_s=0.01)

    with pytest.raises(FunctionTimeoutError, match=r"Task timed out after 0\.01 seconds"):
        next(invocation)


def test_ready_is_when_the_first_event_is_asked_for(api: RuntimeApi, function: HTTPConnection) -> None:
    before_ns = time.monotonic_ns()
    function.request("GET", RUNTIME + "/invocation/next")

    ready_ns = api.wait_ready(10)

    assert before_ns < ready_ns < time.monotonic_ns()
    assert api.wait_ready(10) == ready_ns


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"hello\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 300 + b"\r\n",
        b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n",
    ],
)
def test_what_is_not_http_is_hung_up_on(api: RuntimeApi, request_bytes: bytes) -> None:
    host, port = api.address.split(":")
    with create_connection((host, int(port)), timeout=10) as connection:
        try:
            connection.sendall(request_bytes)
            received = connection.recv(100)
        except ConnectionError:
            received = b""
    assert received == b""
