# SPDX-License-Identifier: Apache-2.0
"""The public side: what a pool's function answers, served over HTTP.

Everything between the socket and an ASGI call (parsing, keep-alive, limits, flow control) is uvicorn's. It
is kept by many and small, passes each chunk on at once, says when a client has gone, and knows how to break
off a body. httptools and uvloop, which make it faster, may be missing. h11 alone would leave connections,
timeouts and shutdown to us; a framework would add routes, which are the function's. It comes with the extra
`host`.
"""

import asyncio
import os
import threading
from collections.abc import Coroutine
from socket import IPPROTO_TCP, TCP_NODELAY, create_server, socket
from typing import TYPE_CHECKING, Any

from quickthaw.snapshot.errors import AddressError, HostExtraMissingError
from quickthaw.snapshot.host.host_application import HostApplication
from quickthaw.snapshot.host.hosted_function import HostedFunction
from quickthaw.snapshot.host.pool import Pool

if TYPE_CHECKING:
    import uvicorn

_DRAIN_S = 2  # for clients that are slow to read the end of their answer


class Front:
    """Serves `pool` on `address`:`port` from a thread of its own, until the end of the `with` block.

    The pool lives on that thread's event loop and ends with it. Port 0 takes a free one.
    """

    def __init__(
        self,
        pool: Pool,
        function: HostedFunction,
        port: int = 0,
        address: str = "127.0.0.1",
    ) -> None:
        """Raises: AddressError, HostExtraMissingError."""
        self._pool = pool
        self._application = HostApplication(pool, function)
        self._server = _server(self._application)
        self._listener = _listen(address, port)
        self.url = "http://{}:{}".format(*self._listener.getsockname())
        self._loop = _new_loop()
        self._thread = threading.Thread(target=self._run, name="front", daemon=True)

    def __enter__(self) -> "Front":
        # Connections are accepted from now on: the socket listens already.
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._call(self._stop())
        self._thread.join()

    def warm(self) -> None:
        """Start the instances that are kept, and wait for them. Raises: FunctionError as the first failed."""
        self._call(self._pool.warm())

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        async with self._pool:
            await self._server.serve([self._listener])

    async def _stop(self) -> None:
        self._application.stop()
        await self._pool.stop()  # which ends every request, so that there is little to wait for
        self._server.should_exit = True

    def _call(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result()


def _server(application: HostApplication) -> "uvicorn.Server":
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
        timeout_graceful_shutdown=_DRAIN_S,
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
