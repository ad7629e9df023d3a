# SPDX-License-Identifier: Apache-2.0
"""The Lambda Runtime API for one function process, as the process sees it over HTTP.

    GET  /2018-06-01/runtime/invocation/next         answered as soon as there is an event
    POST /2018-06-01/runtime/invocation/ID/response  the answer: whole, or in chunks, an error in the trailers
    POST /2018-06-01/runtime/invocation/ID/error     the function failed
    POST /2018-06-01/runtime/init/error              the function failed before its first event
    GET  /2018-06-01/runtime/restore/next            the function may be captured; answered at once
    POST /2018-06-01/runtime/restore/error           the function failed after that

Source: https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html
"""

import re
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from quickthaw.snapshot.errors import FunctionError, FunctionInitError, FunctionRestoreError, WireError
from quickthaw.snapshot.host.http_wire import Reader, Request, reply, reply_json
from quickthaw.snapshot.host.invocation import (
    Invocation,
    error_from_document,
    error_from_trailers,
    init_timeout_error,
)
from quickthaw.snapshot.host.listener import Connect, ThreadListener, Transport
from quickthaw.snapshot.host.sizes import RESPONSE_LIMIT_BYTES, RESPONSE_TOO_LARGE, response_too_large
from quickthaw.snapshot.streaming import ERROR_BODY_TRAILER, ERROR_TYPE_TRAILER

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from quickthaw.snapshot.host.loop_listener import LoopListener

FUNCTION_ARN = "arn:aws:lambda:us-east-1:000000000000:function:function"
_EXIT_WAIT_S = 1.0
_PREFIX = "/2018-06-01/runtime"
_INVOCATION_PATH = re.compile(rf"{_PREFIX}/invocation/([^/]+)/(response|error)")
_ACCEPTED = reply_json(202, {"status": "OK"})
_UNKNOWN_ID = reply_json(400, {"errorType": "InvalidRequestID", "errorMessage": "Invalid request ID"})


class RuntimeApi:
    """Serves one function process until `close`. One event at a time, as Lambda has it.

    With a `loop` it is served there, and events are to be sent from there; all else is for any thread.
    """

    def __init__(self, function_arn: str = FUNCTION_ARN, loop: "AbstractEventLoop | None" = None) -> None:
        self.function_arn = function_arn
        self._pending: deque[Invocation] = deque()
        self._asking: _Connection | None = None  # which waits for an event
        self._current: Invocation | None = None
        self._ready_ns: int | None = None
        self._failure: FunctionError | None = None
        self._changed = threading.Condition()

        def connect(transport: Transport) -> _Connection:
            return _Connection(self, transport)

        self._listener = _listener(connect, loop)

    @property
    def address(self) -> str:
        """HOST:PORT, for AWS_LAMBDA_RUNTIME_API."""
        return self._listener.address

    def wait_ready(self, timeout_s: float) -> int:
        """Wait until the function asks for its first event; return when it did (monotonic clock, ns).

        Raises: FunctionInitError, or the error given to `fail`.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._failure or self._ready_ns, timeout_s)
            if self._ready_ns is not None:
                return self._ready_ns
            if self._failure is not None:
                raise self._failure
        raise init_timeout_error(timeout_s)

    @property
    def is_ready(self) -> bool:
        """Whether the function has asked for an event."""
        return self._ready_ns is not None

    @property
    def has_failed(self) -> bool:
        """Whether there will be no more answers."""
        return self._failure is not None

    @property
    def failure(self) -> FunctionError | None:
        """Why there will be no more answers."""
        return self._failure

    def send(self, invocation: Invocation) -> None:
        """Give the function an event, now or when it asks for one.

        Raises: the error given to `fail`, when there is no function any more.
        """
        with self._changed:
            if self._failure is not None:
                raise self._failure
            asking, self._asking = self._asking, None
            if asking is None:
                self._pending.append(invocation)
                return
            self._current = invocation
        asking.send_event(invocation)

    def fail(self, error: FunctionError) -> None:
        """There will be no more answers: end whatever is waiting for one."""
        with self._changed:
            self._failure = self._failure or error
            self._changed.notify_all()
            waiting = [*([self._current] if self._current else []), *self._pending]
            self._pending.clear()
        for invocation in waiting:
            invocation.finish(error)

    def close(self) -> None:
        """Stop serving and close every connection."""
        self._listener.close()

    # --- for its connections ---

    def ask(self, connection: "_Connection") -> Invocation | None:
        """The event for a connection that asks for one; None while there is none."""
        with self._changed:
            if self._ready_ns is None:
                self._ready_ns = time.monotonic_ns()
                self._changed.notify_all()
            if self._failure is None and self._pending:
                self._current = self._pending.popleft()
                return self._current
            self._asking = connection
            return None

    def forget(self, connection: "_Connection") -> None:
        """It asks no more."""
        with self._changed:
            if self._asking is connection:
                self._asking = None

    def current(self, request_id: str) -> Invocation | None:
        """The invocation that is to be answered, if this is its id."""
        invocation = self._current
        return invocation if invocation is not None and invocation.request_id == request_id else None

    def finish(self, invocation: Invocation, error: FunctionError | None = None) -> None:
        """It was answered."""
        self._current = None
        invocation.finish(error)


class _Connection:
    """One connection of the function's: reads its requests, and replies."""

    def __init__(self, api: RuntimeApi, transport: Transport) -> None:
        self._api = api
        self._transport = transport
        self._reader = Reader(self)
        self._request = Request("", "", {})
        self._body = bytearray()
        self._streamed: Invocation | None = None  # whose answer is coming in pieces

    def received(self, data: bytes) -> None:
        try:
            self._reader.feed(data)
        except WireError:
            self._hang_up()

    def lost(self) -> None:
        self._api.forget(self)
        if self._streamed is None:
            return
        invocation, self._streamed = self._streamed, None
        error = FunctionError("Runtime.TruncatedResponse", "the connection ended within the answer")
        if invocation.is_closed:
            self._api.finish(invocation, error)
        else:
            # Unless we hung up, the process has died: its exit says more than a broken connection does.
            timer = threading.Timer(_EXIT_WAIT_S, invocation.finish, (error,))
            timer.daemon = True
            timer.start()

    def send_event(self, invocation: Invocation) -> None:
        """Reply to who has asked for an event."""
        headers = {
            "Lambda-Runtime-Aws-Request-Id": invocation.request_id,
            "Lambda-Runtime-Deadline-Ms": str(invocation.deadline_ms),
            "Lambda-Runtime-Trace-Id": invocation.trace_id,
            "Lambda-Runtime-Invoked-Function-Arn": self._api.function_arn,
        }
        if invocation.client_context is not None:
            headers["Lambda-Runtime-Client-Context"] = invocation.client_context
        self._transport.write(reply(200, invocation.event, headers))

    # --- what the reader finds ---

    def begin(self, request: Request) -> None:
        self._request = request
        self._body.clear()
        mode = request.headers.get("lambda-runtime-function-response-mode", "")
        match = _INVOCATION_PATH.fullmatch(request.path) if mode.lower() == "streaming" else None
        invocation = self._api.current(match[1]) if match is not None and match[2] == "response" else None
        if invocation is not None:
            self._streamed = invocation
            invocation.content_type = request.headers.get("content-type", "")
            invocation.is_streamed = True
            invocation.attach(self._transport)

    def take(self, data: bytes) -> None:
        if self._streamed is None:
            self._body += data
        else:
            self._streamed.deliver(data)

    def end(self) -> None:
        if self._streamed is not None:
            self._end_stream(self._streamed)
        else:
            self._answer(self._request.method, self._request.path)
        if not self._request.keeps_alive:
            self._transport.close()

    def _end_stream(self, invocation: Invocation) -> None:
        self._streamed = None
        trailers = self._request.trailers
        error_type = trailers.get(ERROR_TYPE_TRAILER.lower(), "")
        error_body = trailers.get(ERROR_BODY_TRAILER.lower(), "")
        failed = error_type or error_body
        self._api.finish(invocation, error_from_trailers(error_type, error_body) if failed else None)
        self._transport.write(_ACCEPTED)

    def _answer(self, method: str, path: str) -> None:
        """Reply to a request that is complete."""
        match = _INVOCATION_PATH.fullmatch(path) if method == "POST" else None
        if match is not None:
            self._take_answer(match[1], match[2])
        elif (method, path) == ("GET", f"{_PREFIX}/invocation/next"):
            invocation = self._api.ask(self)
            if invocation is not None:
                self.send_event(invocation)
        elif (method, path) == ("POST", f"{_PREFIX}/init/error"):
            self._fail(FunctionInitError)
        elif (method, path) == ("GET", f"{_PREFIX}/restore/next"):
            self._transport.write(reply(200))
        elif (method, path) == ("POST", f"{_PREFIX}/restore/error"):
            self._fail(FunctionRestoreError)
        else:
            self._transport.write(reply(404, b"404 page not found\n"))
            self._hang_up()

    def _take_answer(self, request_id: str, kind: str) -> None:
        invocation = self._api.current(request_id)
        if invocation is None:
            self._transport.write(_UNKNOWN_ID)
        elif kind == "error":
            error_type = self._request.headers.get(ERROR_TYPE_TRAILER.lower(), "")
            self._api.finish(invocation, error_from_document(bytes(self._body), error_type))
            self._transport.write(_ACCEPTED)
        elif len(self._body) > RESPONSE_LIMIT_BYTES:
            self._api.finish(invocation, response_too_large())
            message = f"Response {RESPONSE_TOO_LARGE}"
            refusal = {"errorType": "RequestEntityTooLarge", "errorMessage": message}
            self._transport.write(reply_json(413, refusal))
        else:
            invocation.content_type = self._request.headers.get("content-type", "")
            # It need not wait for the answer to go on its way: it asks for the next event meanwhile.
            self._transport.write(_ACCEPTED)
            invocation.deliver(bytes(self._body))
            self._api.finish(invocation)

    def _fail(self, kind: type[FunctionInitError]) -> None:
        error_type = self._request.headers.get(ERROR_TYPE_TRAILER.lower(), "")
        self._api.fail(error_from_document(bytes(self._body), error_type, kind))
        self._transport.write(_ACCEPTED)

    def _hang_up(self) -> None:
        self._reader.stop()
        self._transport.close()


def _listener(connect: Connect, loop: "AbstractEventLoop | None") -> "ThreadListener | LoopListener":
    if loop is None:
        return ThreadListener(connect)
    from quickthaw.snapshot.host.loop_listener import LoopListener

    return LoopListener(connect, loop)
