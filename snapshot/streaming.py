# SPDX-License-Identifier: Apache-2.0
"""Streamed answers: what a handler returns to send one piece by piece, and how it reaches the Runtime API.

    body of a direct invoke:      chunk, chunk, …
    body of an HTTP integration:  {"statusCode": …, "headers": …, "cookies": …}, 8 NUL bytes, chunk, chunk, …

An exception before the first chunk is an ordinary invocation error. One after it can only travel behind the
bytes already sent: in the trailers. When the caller has gone away, the handler's generator is closed.

Source: https://docs.aws.amazon.com/lambda/latest/dg/runtimes-custom.html (response streaming).
"""

import json
import logging
import traceback
from binascii import b2a_base64
from collections.abc import Iterable, Iterator, Mapping, Sequence

from quickthaw.snapshot.chunked import ChunkedPost
from quickthaw.snapshot.errors import StreamError, StreamSetupError

HTTP_INTEGRATION_TYPE = "application/vnd.awslambda.http-integration-response"
ERROR_TYPE_TRAILER = "Lambda-Runtime-Function-Error-Type"
ERROR_BODY_TRAILER = "Lambda-Runtime-Function-Error-Body"
PRELUDE_END = bytes(8)

_is_available = False
_logger = logging.getLogger(__name__)


def is_available() -> bool:
    """Whether this process can send a StreamedResponse: true under our bootstrap, false under any other."""
    return _is_available


def enable() -> None:
    """Called by whoever put `send` in place."""
    global _is_available
    _is_available = True


class StreamedResponse:
    """A handler's answer as chunks of bytes; each is on the wire before the handler is asked for the next.

    With a `status`, the answer is meant for an HTTP integration (a function URL or API Gateway).

    Raises: StreamSetupError for a content type that would break out of its header.
    """

    def __init__(
        self,
        chunks: Iterable[bytes],
        content_type: str = "application/octet-stream",
        *,
        status: int | None = None,
        headers: Mapping[str, str] | None = None,
        cookies: Sequence[str] = (),
    ) -> None:
        if not (content_type.isascii() and content_type.isprintable()):
            raise StreamSetupError(f"content type {content_type!r}: expected printable ASCII")
        self._chunks = iter(chunks)
        self._unsent = b""
        self._content_type = content_type
        if status is not None:
            self._content_type = HTTP_INTEGRATION_TYPE
            prelude = {
                "statusCode": status,
                "headers": {"content-type": content_type, **(headers or {})},
                "cookies": list(cookies),
            }
            self._unsent = json.dumps(prelude).encode() + PRELUDE_END

    @property
    def content_type(self) -> str:
        """The content type as the Runtime API wants it."""
        return self._content_type

    def prime(self) -> None:
        """Run the handler up to its first chunk, so that an error before it can still be an ordinary one."""
        self._unsent += next(self._checked(), b"")

    def __iter__(self) -> Iterator[bytes]:
        if self._unsent:
            yield self._unsent
        yield from self._checked()

    def close(self) -> None:
        """End the handler's generator."""
        close = getattr(self._chunks, "close", None)
        if close is not None:
            close()

    def _checked(self) -> Iterator[bytes]:
        for chunk in self._chunks:
            if not isinstance(chunk, bytes):
                raise StreamSetupError(f"a streamed chunk is {type(chunk).__name__}, expected bytes")
            if chunk:
                yield chunk


def send(response: StreamedResponse, address: str, path: str, headers: Mapping[str, str]) -> None:
    """POST `response` to the Runtime API at `address`. A failure is logged: the next event must be served."""
    try:
        post = ChunkedPost(address, path, headers, (ERROR_TYPE_TRAILER, ERROR_BODY_TRAILER))
        try:
            post.finish(_write_chunks(response, post))
        finally:
            post.close()
    except StreamError as exc:
        _logger.warning("%s", exc)
    finally:
        _close_quietly(response)


def _write_chunks(response: StreamedResponse, post: ChunkedPost) -> dict[str, str]:
    """Send every chunk; return the trailers."""
    chunks = iter(response)
    while True:
        # Only what the handler raises becomes a trailer: when a write fails there is nobody to read one.
        try:
            chunk = next(chunks, None)
        except Exception as exc:
            _logger.exception("the handler failed after its answer had begun")
            return _error_trailers(exc)
        if chunk is None:
            return {}
        post.write(chunk)


def _error_trailers(exc: Exception) -> dict[str, str]:
    error_type = type(exc).__name__
    document = {
        "errorMessage": str(exc),
        "errorType": error_type,
        "stackTrace": traceback.format_tb(exc.__traceback__),
    }
    body = b2a_base64(json.dumps(document).encode(), newline=False).decode("ascii")
    return {ERROR_TYPE_TRAILER: error_type, ERROR_BODY_TRAILER: body}


def _close_quietly(response: StreamedResponse) -> None:
    try:
        response.close()
    except Exception:
        _logger.exception("the handler failed while its stream was being closed")
