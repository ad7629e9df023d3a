# SPDX-License-Identifier: Apache-2.0
"""What a client sees of a request that failed: a status, and JSON in the shape of OpenAI's errors.

What a function raised may be nobody else's business: only its type leaves, the rest is in the function's log.
"""

import json

from quickthaw.snapshot.errors import (
    BadAnswerError,
    FunctionError,
    FunctionExitedError,
    FunctionTimeoutError,
    HostError,
    HostStoppedError,
    RequestTooLargeError,
    SnapshotError,
    TooManyRequestsError,
)
from quickthaw.snapshot.host.http_answer import Head

_STATUSES = {
    RequestTooLargeError: 413,
    TooManyRequestsError: 429,
    HostStoppedError: 503,
    FunctionTimeoutError: 504,
}
_DEFAULT_STATUS = 502  # the function failed
_RETRY_LATER = (429, 503)


def error_response(exc: SnapshotError) -> tuple[Head, bytes]:
    """The response for a request that was not answered."""
    status = next((status for kind, status in _STATUSES.items() if isinstance(exc, kind)), _DEFAULT_STATUS)
    headers = [("content-type", "application/json")]
    if status in _RETRY_LATER:
        headers.append(("retry-after", "1"))
    return Head(status, headers), _document(exc)


def error_event(exc: SnapshotError) -> bytes:
    """The same as a server-sent event, for an answer that has begun."""
    return b"data: " + _document(exc) + b"\n\n"


def _document(exc: SnapshotError) -> bytes:
    error_type = exc.error_type if isinstance(exc, FunctionError) else type(exc).__name__
    is_ours = isinstance(exc, HostError | BadAnswerError | FunctionExitedError | FunctionTimeoutError)
    message = str(exc) if is_ours else f"the function failed with {error_type}; its log says why"
    error = {"message": message, "type": error_type, "param": None, "code": None}
    return json.dumps({"error": error}, separators=(",", ":")).encode()
