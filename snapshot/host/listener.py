# SPDX-License-Identifier: Apache-2.0
"""A loopback address whose connections are served on an event loop, or, where there is none, on threads.

Who serves a connection has the methods of an asyncio.Protocol, and is given a transport. On a loop everything
happens there, and a connection that is to be slow is paused; on threads each connection has one, which
waits instead.

Source: https://docs.python.org/3/library/asyncio-protocol.html.
"""

import asyncio
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from socket import IPPROTO_TCP, SHUT_RD, SHUT_RDWR, SO_LINGER, SOL_SOCKET, TCP_NODELAY, create_server, socket
from typing import Protocol, cast

_RECEIVE_BYTES = 262_144
# An ordinary close lets the peer's first write after it succeed.
_RESET_ON_CLOSE = (SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))


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
            self._socket.setsockopt(*_RESET_ON_CLOSE)
            self._socket.shutdown(SHUT_RD)

    def pause(self) -> None:
        pass

    def resume(self) -> None:
        pass


class LoopListener:
    """Serves on `loop` until `close`. To be made and closed on another thread than the loop's."""

    def __init__(self, connect: Connect, loop: asyncio.AbstractEventLoop) -> None:
        self._connect = connect
        self._loop = loop
        self._socket = create_server(("127.0.0.1", 0))
        self._socket.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)
        self.address = "{}:{}".format(*self._socket.getsockname())
        self._connections: set[_LoopConnection] = set()
        self._server = asyncio.run_coroutine_threadsafe(self._serve(), loop).result()

    def close(self) -> None:
        """Stop serving and close every connection."""
        with suppress(RuntimeError):  # the loop is closed, and everything with it
            self._loop.call_soon_threadsafe(self._close)

    async def _serve(self) -> asyncio.Server:
        return await self._loop.create_server(
            lambda: _LoopConnection(self._connect, self._connections), sock=self._socket
        )

    def _close(self) -> None:
        self._server.close()
        for connection in list(self._connections):
            connection.close()


class _LoopConnection(asyncio.Protocol):
    """asyncio's view of a connection, and its Transport."""

    def __init__(self, connect: Connect, connections: "set[_LoopConnection]") -> None:
        self._connections = connections
        self._served = connect(self)
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is not one by name
        self._connections.add(self)

    def data_received(self, data: bytes) -> None:
        self._served.received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._transport = None
        self._connections.discard(self)
        self._served.lost()

    def write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def reset(self) -> None:
        if self._transport is not None:
            self._transport.get_extra_info("socket").setsockopt(*_RESET_ON_CLOSE)
            self._transport.abort()

    def pause(self) -> None:
        if self._transport is not None:
            self._transport.pause_reading()

    def resume(self) -> None:
        if self._transport is not None:
            self._transport.resume_reading()
