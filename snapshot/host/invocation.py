# SPDX-License-Identifier: Apache-2.0
"""One event on its way through a function, between who waits for the answer and who delivers it."""

import json
import os
import threading
import time
from base64 import b64decode
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import NamedTuple

from quickthaw.snapshot.errors import FunctionError, FunctionInitError, FunctionTimeoutError
from quickthaw.snapshot.host.listener import Transport

MAX_WAITING_CHUNKS = 64  # who reads slowly slows the function down, and fills no memory


class Chunk(NamedTuple):
    """A piece of an answer, and when the last byte of it had arrived (monotonic clock)."""

    data: bytes
    arrival_ns: int


@dataclass(frozen=True, slots=True)
class End:
    """The function is done with this event; `error` says how the answer broke off."""

    error: FunctionError | None


def _do_nothing() -> None:
    pass


class Invocation:
    """Iterate for the answer's chunks, as they come; a FunctionError comes where the answer broke off.

    `content_type` and `is_streamed` describe the answer once its first chunk is there. The process that
    answers is to be killed by `on_timeout`.
    """

    def __init__(self, event: bytes, timeout_s: float, trace_id: str | None = None) -> None:
        self.event = event
        self.request_id = _unique_id()
        self.client_context: str | None = None
        self.trace_id = trace_id or f"Root=1-{int(time.time()):08x}-{os.urandom(12).hex()};Sampled=0"
        self.timeout_s = timeout_s
        self.deadline_ms = int((time.time() + timeout_s) * 1000)
        self.content_type = ""
        self.is_streamed = False
        self.is_closed = False
        self.on_timeout: Callable[[], object] = _do_nothing
        self._began_ns = time.monotonic_ns()
        self._deadline_ns = self._began_ns + int(timeout_s * 1e9)
        self._items: SimpleQueue[Chunk | End] = SimpleQueue()
        self._is_over = False
        self._room = threading.Semaphore(MAX_WAITING_CHUNKS)
        self._transport: Transport | None = None  # of an answer that is coming in pieces
        self._transport_lock = threading.Lock()

    @property
    def elapsed_ms(self) -> float:
        """How long ago it was made."""
        return (time.monotonic_ns() - self._began_ns) / 1e6

    # --- who waits ---

    def __iter__(self) -> "Invocation":
        return self

    def __next__(self) -> Chunk:
        """Wait for the next chunk.

        Raises: FunctionError, and FunctionTimeoutError at the deadline.
        """
        if self._is_over:
            raise StopIteration
        remaining_s = (self._deadline_ns - time.monotonic_ns()) / 1e9
        try:
            item = self._items.get(timeout=max(0.0, remaining_s))
        except Empty:
            item = End(timeout_error(self))
            self.close()
            self.on_timeout()
        if isinstance(item, End):
            self._is_over = True
            if item.error is not None:
                raise item.error
            raise StopIteration
        self._room.release()
        return item

    def close(self) -> None:
        """Stop listening, and hang up on a function that is streaming: its next write fails."""
        with self._transport_lock:
            self.is_closed = True
            if self._transport is not None:
                self._transport.reset()
        self._room.release()

    # --- who delivers ---

    def attach(self, transport: Transport) -> None:
        """The answer is coming in pieces, on this connection."""
        with self._transport_lock:
            self._transport = transport
            if self.is_closed:
                transport.reset()

    def deliver(self, data: bytes) -> None:
        """Hand over a chunk, when there is room for it."""
        if not self.is_closed:
            self._room.acquire()
        self._put(Chunk(data, time.monotonic_ns()))

    def finish(self, error: FunctionError | None = None) -> None:
        """End the answer, whole or with an error. Only the first end counts."""
        with self._transport_lock:
            self._transport = None  # the connection may be used for the next answer
        self._put(End(error))

    def _put(self, item: Chunk | End) -> None:
        self._items.put(item)


def _unique_id() -> str:
    """A UUID of version 4, without the object that uuid makes of it."""
    digits = os.urandom(16).hex()
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"


def timeout_error(invocation: Invocation) -> FunctionTimeoutError:
    """The error Lambda reports for an invocation that reached its deadline."""
    message = (
        f"RequestId: {invocation.request_id} Error: Task timed out after {invocation.timeout_s:.2f} seconds"
    )
    return FunctionTimeoutError("Sandbox.Timedout", message)


def init_timeout_error(timeout_s: float) -> FunctionInitError:
    """The error of a function whose init took too long."""
    return FunctionInitError("Sandbox.Timedout", f"Init timed out after {timeout_s:.2f} seconds")


def error_from_document(
    document: bytes, error_type: str = "", kind: type[FunctionError] = FunctionError
) -> FunctionError:
    """Read Lambda's error document, {"errorMessage", "errorType", "stackTrace"}; all else is a message."""
    try:
        fields = json.loads(document)
        message, stack_trace = str(fields["errorMessage"]), tuple(map(str, fields.get("stackTrace") or ()))
        return kind(str(fields.get("errorType") or error_type or "Unhandled"), message, stack_trace)
    except (ValueError, KeyError, TypeError, AttributeError):
        return kind(error_type or "Unhandled", document.decode("utf-8", "replace"))


def error_from_trailers(error_type: str, body: str) -> FunctionError:
    """Read the error that came behind a streamed answer. `body` is base64 of an error document."""
    try:
        return error_from_document(b64decode(body, validate=True), error_type)
    except ValueError:
        return FunctionError(error_type or "Unhandled", body)
