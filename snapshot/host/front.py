# SPDX-License-Identifier: Apache-2.0
"""The public side: an application, served over HTTP.

Everything between the socket and an ASGI call (parsing, keep-alive, limits, flow control) is uvicorn's. It
is kept by many and small, passes each chunk on at once, says when a client has gone, and knows how to break
off a body. httptools and uvloop, which make it faster, may be missing. h11 alone would leave connections,
timeouts and shutdown to us; a framework would add routes, which are the function's. It comes with the extra
`host`.
"""

import asyncio
import math
import os
import threading
from collections.abc import Coroutine
from socket import IPPROTO_TCP, TCP_NODELAY, create_server, socket
from typing import TYPE_CHECKING, Any, Protocol

from quickthaw.snapshot.errors import AddressError, HostExtraMissingError
from quickthaw.snapshot.host.asgi import Message, Receive, Send

if TYPE_CHECKING:
    import uvicorn

_DRAIN_S = 2  # for clients that are slow to read the end of their answer


class Application(Protocol):
    """What answers: an ASGI application that is open while it is served."""

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None: ...

    async def __aenter__(self) -> object: ...

    async def __aexit__(self, *exc_info: object) -> object: ...

    async def stop(self) -> None:
        """The end is near: break off what shall not be waited for."""


class Front:
    """Serves `application` on `address`:`port` from a thread of its own, until the end of the `with` block.

    The application lives on that thread's event loop and ends with it. Port 0 takes a free one. At the end
    requests that were begun have `drain_s` to be answered.
    """

    def __init__(
        self, application: Application, port: int = 0, address: str = "127.0.0.1", drain_s: float = _DRAIN_S
    ) -> None:
        """Raises: AddressError, HostExtraMissingError."""
        self._application = application
        self._server = _server(application, drain_s)
        self._listener = _listen(address, port)
        self.url = "http://{}:{}".format(*self._listener.getsockname())
        self._loop = _new_loop()
        self._thread = threading.Thread(target=self._run, name="front", daemon=True)

    def __enter__(self) -> "Front":
        # Connections are accepted from now on: the socket listens already.
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.call(self._stop())
        self._thread.join()

    def call(self, work: Coroutine[Any, Any, None]) -> None:
        """Do that on the application's loop, and wait for it. Raises: what it raises."""
        asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        async with self._application:
            await self._server.serve([self._listener])

    async def _stop(self) -> None:
        await self._application.stop()
        self._server.should_exit = True


def _server(application: Application, drain_s: float) -> "uvicorn.Server":
    try:
        import uvicorn
    except ImportError as exc:
        raise HostExtraMissingError from exc
    config = uvicorn.Config(
        application,
        lifespan="off",
        ws="none",
        access_log=False,
        log_config=None,
        log_level="critical",  # an answer that breaks off is no news; the application logs what is
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=math.ceil(drain_s),
    )
    return uvicorn.Server(config)


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        from uvloop import new_event_loop
    except ImportError:
        return asyncio.new_event_loop()
    return new_event_loop()


def _listen(address: str, port: int) -> socket:
    try:
        listener = create_server((address, port))
    except OSError as exc:
        raise AddressError(f"{address}:{port}", os.strerror(exc.errno or 0)) from exc
    except OverflowError as exc:
        raise AddressError(f"{address}:{port}", "no such port") from exc
    # Inherited by every connection. Without it a status line waits 40 ms to be acknowledged before the body
    # may follow; asyncio sets it only where a socket names its protocol.
    listener.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)
    return listener
