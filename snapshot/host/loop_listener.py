# SPDX-License-Identifier: Apache-2.0
"""A loopback address whose connections are served on an event loop: the host's own, which serves its clients.

A module of its own because it imports asyncio: whoever runs one function, on threads, does without.

Source: https://docs.python.org/3/library/asyncio-protocol.html.
"""

import asyncio
from contextlib import suppress
from socket import IPPROTO_TCP, TCP_NODELAY, create_server
from typing import cast

from quickthaw.snapshot.host.listener import RESET_ON_CLOSE, Connect


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
            self._transport.get_extra_info("socket").setsockopt(*RESET_ON_CLOSE)
            self._transport.abort()

    def pause(self) -> None:
        if self._transport is not None:
            self._transport.pause_reading()

    def resume(self) -> None:
        if self._transport is not None:
            self._transport.resume_reading()
