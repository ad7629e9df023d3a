# SPDX-License-Identifier: Apache-2.0
"""The Lambda Runtime API for one function process, as the process sees it over HTTP.

    GET  /2018-06-01/runtime/invocation/next         blocks until there is an event
    POST /2018-06-01/runtime/invocation/ID/response  the answer: whole, or in chunks, an error in the trailers
    POST /2018-06-01/runtime/invocation/ID/error     the function failed
    POST /2018-06-01/runtime/init/error              the function failed before its first event
    GET  /2018-06-01/runtime/restore/next            the function may be captured; answered at once
    POST /2018-06-01/runtime/restore/error           the function failed after that

Source: https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html
"""

import re
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from socket import SHUT_RD, SHUT_RDWR, SO_LINGER, SOL_SOCKET, create_server, socket

from quickthaw.snapshot.errors import FunctionError, FunctionInitError, FunctionRestoreError, WireError
from quickthaw.snapshot.host import http_wire
from quickthaw.snapshot.host.http_wire import Request
from quickthaw.snapshot.host.invocation import Invocation, error_from_document, error_from_trailers
from quickthaw.snapshot.streaming import ERROR_BODY_TRAILER, ERROR_TYPE_TRAILER

_RESPONSE_LIMIT_BYTES = 6 * 1024 * 1024 + 100  # as Lambda's, for an answer that is not streamed
_EXIT_WAIT_S = 1.0
_PREFIX = "/2018-06-01/runtime"
_INVOCATION_PATH = re.compile(rf"{_PREFIX}/invocation/([^/]+)/(response|error)")
_ACCEPTED = {"status": "OK"}
_Route = Callable[[socket, Request], bool]  # returns whether the connection is still in order


class RuntimeApi:
    """Serves one function process until `close`. One event at a time, as Lambda has it."""

    def __init__(self, function_arn: str = "arn:aws:lambda:us-east-1:000000000000:function:function") -> None:
        self._function_arn = function_arn
        self._listener = create_server(("127.0.0.1", 0))
        self._pending: SimpleQueue[Invocation | None] = SimpleQueue()
        self._current: Invocation | None = None
        self._ready_ns: int | None = None
        self._failure: FunctionError | None = None
        self._changed = threading.Condition()
        self._connections: set[socket] = set()
        self._routes: dict[tuple[str, str], _Route] = {
            ("GET", f"{_PREFIX}/invocation/next"): self._serve_next,
            ("POST", f"{_PREFIX}/init/error"): self._take_init_error,
            ("GET", f"{_PREFIX}/restore/next"): self._serve_restore,
            ("POST", f"{_PREFIX}/restore/error"): self._take_restore_error,
        }
        self._acceptor = threading.Thread(target=self._accept, name="runtime-api", daemon=True)
        self._acceptor.start()

    @property
    def address(self) -> str:
        """HOST:PORT, for AWS_LAMBDA_RUNTIME_API."""
        host, port = self._listener.getsockname()
        return f"{host}:{port}"

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
        raise FunctionInitError("Sandbox.Timedout", f"Init timed out after {timeout_s:.2f} seconds")

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
        """Queue an event for the function.

        Raises: the error given to `fail`, when there is no function any more.
        """
        with self._changed:
            if self._failure is not None:
                raise self._failure
            self._pending.put(invocation)

    def fail(self, error: FunctionError) -> None:
        """There will be no more answers: end whatever is waiting for one."""
        with self._changed:
            self._failure = self._failure or error
            self._changed.notify_all()
            if self._current is not None:
                self._current.finish(error)
            while not self._pending.empty():
                waiting = self._pending.get()
                if waiting is not None:
                    waiting.finish(error)

    def close(self) -> None:
        """Stop serving and close every connection."""
        for open_socket in (self._listener, *list(self._connections)):
            with suppress(OSError):  # it may be closed already
                open_socket.shutdown(SHUT_RDWR)  # wakes a thread that waits on it, as close would not
        self._pending.put(None)
        self._acceptor.join()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return  # closed
            threading.Thread(target=self._serve, args=(connection,), name="runtime-api", daemon=True).start()

    def _serve(self, connection: socket) -> None:
        """Serve one connection to its end."""
        self._connections.add(connection)
        try:
            with connection, connection.makefile("rb") as source:
                while (request := http_wire.read_request(source)) is not None:
                    if not self._route(connection, request) or not request.keeps_alive:
                        return
        except (WireError, OSError):
            pass  # the function has gone; whoever watches its process says why
        finally:
            self._connections.discard(connection)

    def _route(self, connection: socket, request: Request) -> bool:
        route = self._routes.get((request.method, request.path))
        if route is not None:
            return route(connection, request)
        match = _INVOCATION_PATH.fullmatch(request.path)
        if match is None or request.method != "POST":
            http_wire.reply(connection, 404, b"404 page not found\n")
            return False
        invocation = self._current
        if invocation is None or invocation.request_id != match[1]:
            request.read()
            error = {"errorType": "InvalidRequestID", "errorMessage": "Invalid request ID"}
            http_wire.reply_json(connection, 400, error)
            return True
        take = self._take_response if match[2] == "response" else self._take_error
        return take(connection, request, invocation)

    def _serve_next(self, connection: socket, request: Request) -> bool:  # noqa: ARG002
        with self._changed:
            if self._ready_ns is None:
                self._ready_ns = time.monotonic_ns()
            self._changed.notify_all()
        invocation = self._pending.get()
        if invocation is None:
            return False
        with self._changed:
            self._current = invocation
            if self._failure is not None:  # since the event was taken from the queue
                invocation.finish(self._failure)
                return False
        headers = {
            "Lambda-Runtime-Aws-Request-Id": invocation.request_id,
            "Lambda-Runtime-Deadline-Ms": str(invocation.deadline_ms),
            "Lambda-Runtime-Trace-Id": invocation.trace_id,
            "Lambda-Runtime-Invoked-Function-Arn": self._function_arn,
        }
        if invocation.client_context is not None:
            headers["Lambda-Runtime-Client-Context"] = invocation.client_context
        http_wire.reply(connection, 200, invocation.event, headers)
        return True

    def _take_response(self, connection: socket, request: Request, invocation: Invocation) -> bool:
        invocation.content_type = request.headers.get("content-type", "")
        mode = request.headers.get("lambda-runtime-function-response-mode", "")
        invocation.is_streamed = mode.lower() == "streaming"
        if not invocation.is_streamed:
            return self._take_whole_response(connection, request, invocation)
        invocation.attach(partial(_hang_up, connection))
        try:
            for chunk in request.body():
                invocation.deliver(chunk)
        except WireError as exc:
            with self._changed:
                # Unless we hung up, the process has died: its exit says more than a broken connection does.
                self._changed.wait_for(lambda: self._failure or invocation.is_closed, _EXIT_WAIT_S)
            self._finish(invocation, FunctionError("Runtime.TruncatedResponse", str(exc)))
            raise
        error_type = request.trailers.get(ERROR_TYPE_TRAILER.lower(), "")
        error_body = request.trailers.get(ERROR_BODY_TRAILER.lower(), "")
        failed = error_type or error_body
        self._finish(invocation, error_from_trailers(error_type, error_body) if failed else None)
        http_wire.reply_json(connection, 202, _ACCEPTED)
        return True

    def _take_whole_response(self, connection: socket, request: Request, invocation: Invocation) -> bool:
        body = request.read()
        if len(body) > _RESPONSE_LIMIT_BYTES:
            message = f"exceeded maximum allowed payload size ({_RESPONSE_LIMIT_BYTES} bytes)."
            self._finish(
                invocation, FunctionError("Function.ResponseSizeTooLarge", f"Response payload size {message}")
            )
            error = {"errorType": "RequestEntityTooLarge", "errorMessage": f"Response {message}"}
            http_wire.reply_json(connection, 413, error)
            return True
        invocation.deliver(body)
        self._finish(invocation)
        http_wire.reply_json(connection, 202, _ACCEPTED)
        return True

    def _take_error(self, connection: socket, request: Request, invocation: Invocation) -> bool:
        error_type = request.headers.get(ERROR_TYPE_TRAILER.lower(), "")
        self._finish(invocation, error_from_document(request.read(), error_type))
        http_wire.reply_json(connection, 202, _ACCEPTED)
        return True

    def _take_init_error(self, connection: socket, request: Request) -> bool:
        return self._take_failure(connection, request, FunctionInitError)

    def _take_restore_error(self, connection: socket, request: Request) -> bool:
        return self._take_failure(connection, request, FunctionRestoreError)

    def _take_failure(self, connection: socket, request: Request, kind: type[FunctionInitError]) -> bool:
        error_type = request.headers.get(ERROR_TYPE_TRAILER.lower(), "")
        self.fail(error_from_document(request.read(), error_type, kind))
        http_wire.reply_json(connection, 202, _ACCEPTED)
        return True

    def _serve_restore(self, connection: socket, request: Request) -> bool:  # noqa: ARG002
        http_wire.reply(connection, 200)
        return True

    def _finish(self, invocation: Invocation, error: FunctionError | None = None) -> None:
        self._current = None
        invocation.finish(error)


def _hang_up(connection: socket) -> None:
    """Break a connection so that the peer's very next write fails.

    It is reset: after an ordinary close the peer's first write would still succeed. Who reads from it wakes
    up and closes it.
    """
    with suppress(OSError):  # it may be closed already
        connection.setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
        connection.shutdown(SHUT_RD)
