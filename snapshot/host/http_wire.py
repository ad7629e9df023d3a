# SPDX-License-Identifier: Apache-2.0
"""The little of HTTP/1.1 that a Runtime API needs: requests whose bodies arrive chunk by chunk, and replies.

Source: RFC 9112. http.server would import http.client, ssl and email, and cannot read a chunked body.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from socket import socket
from typing import BinaryIO

from quickthaw.snapshot.errors import WireError

_LINE_LIMIT_BYTES = 65_536
_MAX_HEADERS = 200
_REASONS = {200: "OK", 202: "Accepted", 400: "Bad Request", 404: "Not Found", 413: "Content Too Large"}


@dataclass(slots=True)
class Request:
    """One request. Header names are in lower case; `trailers` fill when the body has been read to its end."""

    method: str
    path: str
    headers: dict[str, str]
    source: BinaryIO
    trailers: dict[str, str] = field(default_factory=dict)

    @property
    def is_chunked(self) -> bool:
        """Whether the body arrives in chunks of the sender's choosing."""
        return self.headers.get("transfer-encoding", "").lower() == "chunked"

    @property
    def keeps_alive(self) -> bool:
        """Whether another request may follow on this connection."""
        return self.headers.get("connection", "").lower() != "close"

    def body(self) -> Iterator[bytes]:
        """Yield each chunk as it arrives, or a body of known length in one piece.

        Raises: WireError when it ends early.
        """
        if self.is_chunked:
            yield from self._chunks()
        elif size_bytes := _size_bytes(self.headers.get("content-length", "0"), base=10):
            yield _read_exactly(self.source, size_bytes)

    def read(self) -> bytes:
        """The whole body. Raises: WireError when it ends early."""
        return b"".join(self.body())

    def _chunks(self) -> Iterator[bytes]:
        while size_bytes := _size_bytes(_read_line(self.source).partition(";")[0], base=16):
            yield _read_exactly(self.source, size_bytes)
            if _read_line(self.source):
                raise WireError("a chunk is longer than it says")
        self.trailers = _read_headers(self.source)


def read_request(source: BinaryIO) -> Request | None:
    """Read the next request up to its body, or return None at the end of the connection.

    Raises: WireError
    """
    first = _read_line(source, may_end=True)
    if not first:
        return None
    method, _, rest = first.partition(" ")
    path, _, version = rest.rpartition(" ")
    if not version.startswith("HTTP/1."):
        raise WireError(f"not an HTTP/1.1 request: {first[:80]!r}")
    return Request(method, path, _read_headers(source), source)


def reply(connection: socket, status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
    """Send one complete reply.

    Raises: OSError when the peer is gone.
    """
    lines = [f"HTTP/1.1 {status} {_REASONS[status]}", "Content-Type: application/json"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    lines += [f"Content-Length: {len(body)}", "", ""]
    connection.sendall("\r\n".join(lines).encode("utf-8") + body)


def reply_json(connection: socket, status: int, document: dict[str, str]) -> None:
    """Send one complete reply that is a JSON document."""
    reply(connection, status, json.dumps(document).encode())


def _read_line(source: BinaryIO, *, may_end: bool = False) -> str:
    try:
        line = source.readline(_LINE_LIMIT_BYTES)
    except OSError as exc:
        raise WireError(str(exc)) from exc
    if not line.endswith(b"\n") and not (may_end and not line):
        raise WireError(f"the connection ended, or a line is over {_LINE_LIMIT_BYTES} bytes")
    return line.rstrip(b"\r\n").decode("latin-1")


def _read_headers(source: BinaryIO) -> dict[str, str]:
    headers: dict[str, str] = {}
    for _ in range(_MAX_HEADERS):
        line = _read_line(source)
        if not line:
            return headers
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    raise WireError(f"more than {_MAX_HEADERS} headers")


def _read_exactly(source: BinaryIO, size_bytes: int) -> bytes:
    try:
        data = source.read(size_bytes)
    except OSError as exc:
        raise WireError(str(exc)) from exc
    if len(data) != size_bytes:
        raise WireError(f"the body ended after {len(data)} of {size_bytes} bytes")
    return data


def _size_bytes(text: str, base: int) -> int:
    try:
        return int(text.strip(), base)
    except ValueError:
        raise WireError(f"not a length: {text[:40]!r}") from None
