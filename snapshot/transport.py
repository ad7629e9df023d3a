# SPDX-License-Identifier: Apache-2.0
"""What awslambdaric's native transport does, in a process that one of our engines restored.

    GET  …/invocation/next          an event: its headers and its body
    POST …/invocation/ID/response   the answer
    POST …/invocation/ID/error      the error document

The native one takes 1 ms of a restore of 3: it cannot be loaded before the address is known, for it keeps the
first one. This one is there before the capture, and connects after it. It has the native one's functions,
and the host's Runtime API alone to talk to, which says how long each reply is and closes no kept connection.
"""

import _socket
from collections.abc import Mapping

from quickthaw.snapshot.chunked import connect, read_head
from quickthaw.snapshot.errors import StreamBrokenError, StreamRefusedError

_INVOCATION = "/2018-06-01/runtime/invocation"
_DEADLINE = "Lambda-Runtime-Deadline-Ms"
_RECEIVE_BYTES = 262_144


class Transport:
    """One kept connection, made with the first request.

    Raises: StreamBrokenError when the host is gone, StreamRefusedError when it does not want what it is told.
    """

    def __init__(self, address: str, user_agent: str) -> None:
        self._address = address
        self._user_agent = user_agent
        self._socket: _socket.socket | None = None

    def next(self) -> tuple[bytes, dict[str, str | int]]:
        """Wait for an event; return it with the headers it comes with, of which the deadline is a number."""
        headers, body = self._ask("GET", f"{_INVOCATION}/next", {})
        return body, {**headers, _DEADLINE: int(headers[_DEADLINE])}

    def post_invocation_result(
        self, invoke_id: str, data: bytes, content_type: str, invocation_id: str | None = None
    ) -> None:
        """Answer an event."""
        headers = {"Content-Type": content_type, **_named(invocation_id)}
        self._ask("POST", f"{_INVOCATION}/{invoke_id}/response", headers, data)

    def post_error(
        self, invoke_id: str, document: str, xray_fault: str, invocation_id: str | None = None
    ) -> None:
        """Say that the function failed. `xray_fault` is for X-Ray, which the host does not have."""
        del xray_fault
        headers = {"Content-Type": "application/json", **_named(invocation_id)}
        data = document.encode("utf-8", "backslashreplace")
        self._ask("POST", f"{_INVOCATION}/{invoke_id}/error", headers, data)

    def close(self) -> None:
        """Drop the connection; the next request makes another one."""
        connection, self._socket = self._socket, None
        if connection is not None:
            connection.close()

    def _ask(
        self, method: str, path: str, headers: Mapping[str, str], data: bytes = b""
    ) -> tuple[dict[str, str], bytes]:
        if self._socket is None:
            self._socket = connect(self._address)
        lines = [
            f"{method} {path} HTTP/1.1",
            f"Host: {self._address}",
            f"User-Agent: {self._user_agent}",
            f"Content-Length: {len(data)}",
            *(f"{name}: {value}" for name, value in headers.items()),
            "",
            "",
        ]
        try:
            self._socket.sendall("\r\n".join(lines).encode("latin-1", "replace") + data)
        except OSError as exc:
            raise StreamBrokenError(self._address, exc) from exc
        return self._read_reply(self._socket)

    def _read_reply(self, socket: _socket.socket) -> tuple[dict[str, str], bytes]:
        status, lines, body = read_head(socket, self._address)
        headers = dict(line.split(": ", 1) for line in lines)
        pieces, n_missing = [body], int(headers.get("Content-Length", "0")) - len(body)
        while n_missing > 0:
            pieces.append(_receive(socket, self._address))
            n_missing -= len(pieces[-1])
        if status // 100 != 2:
            raise StreamRefusedError(self._address, status)
        return headers, b"".join(pieces)


def _receive(socket: _socket.socket, address: str) -> bytes:
    try:
        data = socket.recv(_RECEIVE_BYTES)
    except OSError as exc:
        raise StreamBrokenError(address, exc) from exc
    if not data:
        raise StreamBrokenError(address, "it ended within a reply")
    return data


def _named(invocation_id: str | None) -> dict[str, str]:
    return {"Lambda-Runtime-Invocation-Id": invocation_id} if invocation_id else {}
