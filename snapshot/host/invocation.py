# SPDX-License-Identifier: Apache-2.0
"""One event on its way through a function, between who waits for the answer and who delivers it."""

import json
import time
from base64 import b64decode
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import NamedTuple
from uuid import uuid4

from quickthaw.snapshot.errors import FunctionError, FunctionTimeoutError


class Chunk(NamedTuple):
    """A piece of an answer, and when the last byte of it had arrived (monotonic clock)."""

    data: bytes
    arrival_ns: int


@dataclass(frozen=True, slots=True)
class _End:
    error: FunctionError | None


class Invocation:
    """Iterate for the answer's chunks, as they come; a FunctionError comes where the answer broke off.

    `content_type` and `is_streamed` describe the answer once its first chunk is there.
    """

    def __init__(self, event: bytes, timeout_s: float, trace_id: str | None = None) -> None:
        self.event = event
        self.request_id = str(uuid4())
        self.trace_id = trace_id or f"Root=1-{int(time.time()):08x}-{uuid4().hex[:24]};Sampled=0"
        self.timeout_s = timeout_s
        self.deadline_ms = int((time.time() + timeout_s) * 1000)
        self.content_type = ""
        self.is_streamed = False
        self.is_closed = False
        self._deadline_ns = time.monotonic_ns() + int(timeout_s * 1e9)
        self._items: SimpleQueue[Chunk | _End] = SimpleQueue()

    def __iter__(self) -> "Invocation":
        return self

    def __next__(self) -> Chunk:
        """Wait for the next chunk.

        Raises: FunctionError, and FunctionTimeoutError at the deadline.
        """
        if self.is_closed:
            raise StopIteration
        remaining_s = (self._deadline_ns - time.monotonic_ns()) / 1e9
        try:
            item = self._items.get(timeout=max(0.0, remaining_s))
        except Empty:
            item = _End(timeout_error(self))
        if isinstance(item, Chunk):
            return item
        self.is_closed = True
        if item.error is not None:
            raise item.error
        raise StopIteration

    def close(self) -> None:
        """Stop listening. A function that is still streaming finds its connection closed."""
        self.is_closed = True

    def deliver(self, data: bytes) -> bool:
        """Hand over a chunk; return whether anybody is listening."""
        self._items.put(Chunk(data, time.monotonic_ns()))
        return not self.is_closed

    def finish(self, error: FunctionError | None = None) -> None:
        """End the answer, whole or with an error. Only the first end counts."""
        self._items.put(_End(error))


def timeout_error(invocation: Invocation) -> FunctionTimeoutError:
    """The error Lambda reports for an invocation that reached its deadline."""
    message = (
        f"RequestId: {invocation.request_id} Error: Task timed out after {invocation.timeout_s:.2f} seconds"
    )
    return FunctionTimeoutError("Sandbox.Timedout", message)


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
