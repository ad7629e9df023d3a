# SPDX-License-Identifier: Apache-2.0
"""A connection to S3 that GETs over HTTP/1.1, one object's bytes after another.

http.client would do it, and cost a start 18 ms more: it imports ssl, which http:// needs not, and email.
"""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping
    from ssl import SSLContext

_HEAD_LIMIT_BYTES = 64 << 10
_REFUSAL_LIMIT_BYTES = 64 << 10  # of the document that says why


class Address(NamedTuple):
    """Where to connect; `context` of a TLS connection."""

    host: str
    port: int
    context: SSLContext | None

    @classmethod
    def of(cls, endpoint: str, ca_bundle: str | None) -> Address:
        """The address of http://host[:port] or https://host[:port]. Raises: ValueError."""
        parts = urlsplit(endpoint)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"expected http:// or https:// and a host, found {endpoint}")
        if parts.scheme == "http":
            return cls(parts.hostname, parts.port or 80, None)
        from ssl import create_default_context

        return cls(parts.hostname, parts.port or 443, create_default_context(cafile=ca_bundle))

    @property
    def name(self) -> str:
        """What the Host header calls it: without the port that goes without saying."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (80 if self.context is None else 443) else f"{host}:{self.port}"


class Answer:
    """A status, headers by their names in lower case, and a body that is read once, before a deadline."""

    def __init__(self, source: socket.socket, deadline_s: float) -> None:
        """Reads the head. Raises: OSError, also for what is no HTTP."""
        self.status, self.headers, self._begun = _read_head(source)
        length = self.headers.get("content-length", "")
        self.left_bytes = int(length) if length.isdigit() else _REFUSAL_LIMIT_BYTES
        self.is_keeping = length.isdigit() and self.headers.get("connection", "").lower() != "close"
        self._source = source
        self._deadline_s = deadline_s
        self._error: OSError | None = None

    def readinto(self, buffer: memoryview) -> int:
        """Fills `buffer` unless the body ends before, or breaks off: the next call says so then.

        Raises: OSError, also for a body that breaks off or takes too long.
        """
        if self._error is not None:
            raise self._error
        wanted = min(len(buffer), self.left_bytes)
        filled = min(len(self._begun), wanted)
        buffer[:filled] = self._begun[:filled]
        self._begun = self._begun[filled:]
        try:
            while filled < wanted:
                filled += self._receive(buffer[filled:wanted])
        except OSError as exc:
            if filled == 0:
                raise
            self._error = exc
        self.left_bytes -= filled
        return filled

    def read(self, limit_bytes: int) -> bytes:
        """The body, at most so much of it. Raises: OSError, as `readinto` does."""
        data = memoryview(bytearray(min(self.left_bytes, limit_bytes)))
        filled = 0
        while filled < len(data):
            filled += self.readinto(data[filled:])
        return bytes(data)

    def _receive(self, buffer: memoryview) -> int:
        received = self._source.recv_into(buffer)
        if received == 0:
            raise ConnectionResetError("the body breaks off")
        if time.monotonic() > self._deadline_s:
            raise TimeoutError("the body takes too long")
        return received

    def refusal(self) -> bytes:
        """The document that says why, as far as it comes, where the status is no success."""
        document = bytearray(self._begun)
        try:
            while len(document) < min(self.left_bytes, _REFUSAL_LIMIT_BYTES):
                received = self._source.recv(_REFUSAL_LIMIT_BYTES)
                if not received:
                    break
                document += received
        except OSError:
            pass  # the status alone has to do
        self.left_bytes -= len(document)
        return bytes(document)


class Connection:
    """One socket; after an error it is to be closed."""

    def __init__(self, address: Address, connect_s: float, silence_s: float) -> None:
        """Raises: OSError."""
        self._socket = socket.create_connection((address.host, address.port), connect_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if address.context is not None:
            self._socket = address.context.wrap_socket(self._socket, server_hostname=address.host)
        self._socket.settimeout(silence_s)
        self.was_used = False

    def get(self, path: str, headers: Mapping[str, str], deadline_s: float) -> Answer:
        """Asks, and reads the head of the answer; `deadline_s` is on the monotonic clock. Raises: OSError."""
        lines = [f"GET {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
        self._socket.sendall("\r\n".join(lines).encode("latin-1"))
        answer = Answer(self._socket, deadline_s)
        self.was_used = True
        return answer

    def close(self) -> None:
        """Lets go of the socket."""
        self._socket.close()


def _read_head(source: socket.socket) -> tuple[int, dict[str, str], bytes]:
    """Status, headers, and what came of the body. Raises: OSError, also for what is no HTTP."""
    data = b""
    while b"\r\n\r\n" not in data:
        received = source.recv(_HEAD_LIMIT_BYTES)
        if not received or len(data) > _HEAD_LIMIT_BYTES:
            raise ConnectionResetError("the answer breaks off" if data else "no answer")
        data += received
    head, _, begun = data.partition(b"\r\n\r\n")
    status_line, *lines = head.decode("latin-1").split("\r\n")
    version, _, rest = status_line.partition(" ")
    if not version.startswith("HTTP/1.") or not rest[:3].isdigit():
        raise ConnectionAbortedError("the answer is no HTTP")
    fields = (line.partition(":") for line in lines)
    return int(rest[:3]), {name.lower(): value.strip() for name, _, value in fields}, begun
