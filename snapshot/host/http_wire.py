# SPDX-License-Identifier: Apache-2.0
"""The little of HTTP/1.1 that a Runtime API needs: requests whose bodies arrive chunk by chunk, and replies.

No socket is touched here: bytes go in as they arrive, and come out as they are to be sent.

Source: RFC 9112. http.server would import http.client, ssl and email, and cannot read a chunked body.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from quickthaw.snapshot.errors import WireError

_HEAD_LIMIT_BYTES = 65_536
_MAX_HEADERS = 200
_REASONS = {200: "OK", 202: "Accepted", 400: "Bad Request", 404: "Not Found", 413: "Content Too Large"}


@dataclass(slots=True)
class Request:
    """One request. Header names are in lower case; `trailers` are there when the body has ended."""

    method: str
    path: str
    headers: dict[str, str]
    trailers: dict[str, str] = field(default_factory=dict)

    @property
    def is_chunked(self) -> bool:
        """Whether the body arrives in chunks of the sender's choosing."""
        return self.headers.get("transfer-encoding", "").lower() == "chunked"

    @property
    def keeps_alive(self) -> bool:
        """Whether another request may follow on this connection."""
        return self.headers.get("connection", "").lower() != "close"


class Receiver(Protocol):
    """Who is told what a Reader finds: `begin`, `take` for each piece of the body, `end`."""

    def begin(self, request: Request) -> None:
        """A request's head is there."""
        ...

    def take(self, data: bytes) -> None:
        """A chunk of its body, or a body of known length in one piece."""
        ...

    def end(self) -> None:
        """It is complete."""
        ...


class Reader:
    """Finds requests in the bytes of one connection."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._unread = bytearray()
        self._read: Callable[[], bool] = self._read_head  # returns whether there was enough
        self._size_bytes = 0
        self._request: Request | None = None

    @property
    def is_within_request(self) -> bool:
        """Whether one has begun that has not ended."""
        return self._request is not None

    def feed(self, data: bytes) -> None:
        """Go on with what has arrived. Raises: WireError when it is not HTTP."""
        self._unread += data
        while self._read():
            pass

    def stop(self) -> None:
        """Find nothing any more."""
        self._read = _nothing

    def _read_head(self) -> bool:
        lines = self._lines(b"\r\n\r\n")
        if lines is None:
            return False
        method, _, rest = lines[0].partition(" ")
        path, _, version = rest.rpartition(" ")
        if not version.startswith("HTTP/1."):
            raise WireError(f"not an HTTP/1.1 request: {lines[0][:80]!r}")
        self._request = Request(method, path, _headers(lines[1:]))
        if self._request.is_chunked:
            self._read = self._read_chunk_head
        else:
            self._size_bytes = _size_bytes(self._request.headers.get("content-length", "0"), base=10)
            self._read = self._read_body
        self._receiver.begin(self._request)
        return True

    def _read_body(self) -> bool:
        if len(self._unread) < self._size_bytes:
            return False
        if self._size_bytes:
            self._receiver.take(self._pop(self._size_bytes))
        return self._end()

    def _read_chunk_head(self) -> bool:
        lines = self._lines(b"\r\n")
        if lines is None:
            return False
        self._size_bytes = _size_bytes(lines[0].partition(";")[0], base=16)
        self._read = self._read_chunk if self._size_bytes else self._read_trailers
        return True

    def _read_chunk(self) -> bool:
        if len(self._unread) < self._size_bytes + 2:
            return False
        data = self._pop(self._size_bytes)
        if self._pop(2) != b"\r\n":
            raise WireError("a chunk is longer than it says")
        self._read = self._read_chunk_head
        self._receiver.take(data)
        return True

    def _read_trailers(self) -> bool:
        if self._unread.startswith(b"\r\n"):
            self._pop(2)
        else:
            lines = self._lines(b"\r\n\r\n")
            if lines is None:
                return False
            assert self._request is not None
            self._request.trailers = _headers(lines)
        return self._end()

    def _end(self) -> bool:
        self._read = self._read_head
        self._request = None
        self._receiver.end()
        return True

    def _lines(self, end: bytes) -> list[str] | None:
        """Everything up to `end`, which is taken too; None while it is not there."""
        if not self._unread:
            return None
        size_bytes = self._unread.find(end)
        if size_bytes > _HEAD_LIMIT_BYTES or (size_bytes < 0 and len(self._unread) > _HEAD_LIMIT_BYTES):
            raise WireError(f"over {_HEAD_LIMIT_BYTES} bytes of headers")
        if size_bytes < 0:
            return None
        text = self._unread[:size_bytes].decode("latin-1")
        del self._unread[: size_bytes + len(end)]
        return text.split("\r\n")

    def _pop(self, size_bytes: int) -> bytes:
        data = bytes(self._unread[:size_bytes])
        del self._unread[:size_bytes]
        return data


def reply(status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> bytes:
    """One complete reply."""
    lines = [f"HTTP/1.1 {status} {_REASONS[status]}", "Content-Type: application/json"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    lines += [f"Content-Length: {len(body)}", "", ""]
    return "\r\n".join(lines).encode("utf-8") + body


def reply_json(status: int, document: dict[str, str]) -> bytes:
    """One complete reply that is a JSON document."""
    return reply(status, json.dumps(document).encode())


def _nothing() -> bool:
    return False


def _headers(lines: list[str]) -> dict[str, str]:
    if len(lines) > _MAX_HEADERS:
        raise WireError(f"more than {_MAX_HEADERS} headers")
    headers: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    return headers


def _size_bytes(text: str, base: int) -> int:
    try:
        size_bytes = int(text.strip(), base)
    except ValueError:
        size_bytes = -1
    if size_bytes < 0:
        raise WireError(f"not a length: {text[:40]!r}")
    return size_bytes
