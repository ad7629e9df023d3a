# SPDX-License-Identifier: Apache-2.0
"""A loopback address whose connections are served on threads, or on an event loop (loop_listener.py).

Who serves a connection is told of what comes, and given a transport. On a loop everything happens there, and
a connection that is to be slow is paused; on threads each connection has one, which waits instead.
"""

import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from socket import SHUT_RD, SHUT_RDWR, SO_LINGER, SOL_SOCKET, create_server, socket
from typing import Protocol

_RECEIVE_BYTES = 262_144
# An ordinary close lets the peer's first write after it succeed.
RESET_ON_CLOSE = (SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))


class Transport(Protocol):
    """One connection's way out. Nothing here raises when the peer has gone."""

    def write(self, data: bytes) -> None:
        """Send."""
        ...

    def close(self) -> None:
        """End the connection when all was sent."""
        ...

    def reset(self) -> None:
        """Break the connection so that the peer's very next write fails."""
        ...

    def pause(self) -> None:
        """Do not receive for now."""
        ...

    def resume(self) -> None:
        """Go on receiving."""
        ...


class Served(Protocol):
    """Who serves a connection."""

    def received(self, data: bytes) -> None:
        """Bytes have come."""
        ...

    def lost(self) -> None:
        """The connection has ended; once."""
        ...


Connect = Callable[[Transport], Served]


class ThreadListener:
    """Serves until `close`; each connection has a thread."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._socket = create_server(("127.0.0.1", 0))
        self.address = "{}:{}".format(*self._socket.getsockname())
        self._connections: set[socket] = set()
        self._acceptor = threading.Thread(target=self._accept, name="runtime-api", daemon=True)
        self._acceptor.start()

    def close(self) -> None:
        """Stop serving and close every connection."""
        for open_socket in (self._socket, *list(self._connections)):
            with suppress(OSError):  # it may be closed already
                open_socket.shutdown(SHUT_RDWR)  # wakes a thread that waits on it, as close would not
        self._acceptor.join()
        self._socket.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return  # closed
            threading.Thread(target=self._serve, args=(connection,), name="runtime-api", daemon=True).start()

    def _serve(self, connection: socket) -> None:
        self._connections.add(connection)
        served = self._connect(_SocketTransport(connection))
        try:
            with connection, suppress(OSError):
                while data := connection.recv(_RECEIVE_BYTES):
                    served.received(data)
        finally:
            served.lost()
            self._connections.discard(connection)


class _SocketTransport:
    """A blocking socket. It is not paused: who takes its bytes waits."""

    def __init__(self, connection: socket) -> None:
        self._socket = connection

    def write(self, data: bytes) -> None:
        with suppress(OSError):
            self._socket.sendall(data)

    def close(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(SHUT_RDWR)  # upon which its thread closes it

    def reset(self) -> None:
        with suppress(OSError):
            self._socket.setsockopt(*RESET_ON_CLOSE)
            self._socket.shutdown(SHUT_RD)

    def pause(self) -> None:
        pass

    def resume(self) -> None:
        pass
