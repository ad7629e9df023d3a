# SPDX-License-Identifier: Apache-2.0
"""One HTTP/1.1 POST whose body leaves piece by piece, written to a raw socket.

    POST path HTTP/1.1 CRLF
    headers, Transfer-Encoding: chunked, Trailer: … CRLF CRLF
    ┌ size in hex, CRLF, bytes, CRLF ┐   once for every write, sent at once
    └────────────────────────────────┘
    0 CRLF
    trailers CRLF CRLF                   an error that came after the first byte

Source: RFC 9112, section 7.1;
https://docs.aws.amazon.com/lambda/latest/dg/runtimes-custom.html (response streaming).
"""

# http.client would do, but imports ssl (20 ms of a start), and socket makes an enum of every constant (3
# ms).
import _socket
from collections.abc import Iterable, Mapping

from quickthaw.snapshot.errors import StreamBrokenError, StreamRefusedError

_HEAD_LIMIT_BYTES = 65_536
_RECEIVE_BYTES = 65_536


class ChunkedPost:
    """An open POST. `write` any number of times, then `finish`; `close` in any case."""

    def __init__(self, address: str, path: str, headers: Mapping[str, str], trailers: Iterable[str]) -> None:
        """Connect and send the head.

        Raises: StreamBrokenError when nobody listens at `address`.
        """
        self._address = address
        self._socket = connect(address)
        lines = [f"POST {path} HTTP/1.1", f"Host: {address}", *(f"{k}: {v}" for k, v in headers.items())]
        lines += [
            "Transfer-Encoding: chunked",
            f"Trailer: {', '.join(trailers)}",
            "Connection: close",
            "",
            "",
        ]
        # Leaves with the first chunk: one packet for the first token.
        self._unsent = "\r\n".join(lines).encode("latin-1", "replace")

    def write(self, data: bytes) -> None:
        """Send one chunk now. An empty one sends nothing: on the wire it would end the body."""
        if data:
            self._send(b"%x\r\n%b\r\n" % (len(data), data))

    def finish(self, trailers: Mapping[str, str]) -> None:
        """End the body and wait until the Runtime API has taken it.

        Raises: StreamRefusedError when it has not; StreamBrokenError when the connection is gone.
        """
        lines = ["0", *(f"{name}: {value}" for name, value in trailers.items()), "", ""]
        self._send("\r\n".join(lines).encode("latin-1", "replace"))
        status, _, _ = read_head(self._socket, self._address)
        if status // 100 != 2:
            raise StreamRefusedError(self._address, status)

    def close(self) -> None:
        """Drop the connection; to the other side, a body without its end is a broken one."""
        self._socket.close()

    def _send(self, data: bytes) -> None:
        data, self._unsent = self._unsent + data, b""
        try:
            self._socket.sendall(data)
        except OSError as exc:
            raise StreamBrokenError(self._address, exc) from exc


def connect(address: str) -> _socket.socket:
    """A connection to the Runtime API. Raises: StreamBrokenError when nobody listens at `address`."""
    host, _, port = address.rpartition(":")
    family = _socket.AF_INET6 if ":" in host else _socket.AF_INET
    connection = _socket.socket(family, _socket.SOCK_STREAM)
    try:
        connection.connect((host.strip("[]"), int(port)))
        # Without it, the kernel may keep a token back until the one before it was acknowledged.
        connection.setsockopt(_socket.IPPROTO_TCP, _socket.TCP_NODELAY, 1)
    except OSError as exc:
        connection.close()
        raise StreamBrokenError(address, exc) from exc
    return connection


def read_head(connection: _socket.socket, address: str) -> tuple[int, list[str], bytes]:
    """Read a reply up to its body: its status, its header lines, and what has come of the body.

    Raises: StreamBrokenError when it is none, or the connection is gone.
    """
    data = b""
    while b"\r\n\r\n" not in data and len(data) < _HEAD_LIMIT_BYTES:
        try:
            received = connection.recv(_RECEIVE_BYTES)
        except OSError as exc:
            raise StreamBrokenError(address, exc) from exc
        if not received:
            break
        data += received
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("utf-8", "replace").split("\r\n")
    version, _, rest = first.partition(" ")
    if not version.startswith("HTTP/1.") or not (rest[:3].isascii() and rest[:3].isdigit()):
        raise StreamBrokenError(address, f"no status line in {data[:80]!r}")
    return int(rest[:3]), lines, body
