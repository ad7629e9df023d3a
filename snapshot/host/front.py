# SPDX-License-Identifier: Apache-2.0
"""The public side: a pool's gateway, served over HTTP.

Everything between the socket and an ASGI call (parsing, keep-alive, limits, flow control) is uvicorn's. It
is kept by many and small (it needs h11 and click), passes each chunk on at once, says when a client has
gone, and knows how to break off a body. h11 alone would leave connections, timeouts and shutdown to us; a
framework would add routes, which are the function's. It comes with the extra `host`.
"""

import os
import threading
from socket import IPPROTO_TCP, TCP_NODELAY, create_server, socket
from typing import TYPE_CHECKING

from quickthaw.snapshot.errors import AddressError, HostExtraMissingError
from quickthaw.snapshot.host.gateway import Gateway
from quickthaw.snapshot.host.pool import Pool

if TYPE_CHECKING:
    import uvicorn

_DRAIN_S = 2  # for clients that are slow to read the end of their answer


class Front:
    """Serves `pool` on `address`:`port` from a thread of its own, until the end of the `with` block.

    The pool is stopped with it: nobody else is there to ask it anything. Port 0 takes a free one.
    """

    def __init__(self, pool: Pool, port: int = 0, address: str = "127.0.0.1") -> None:
        """Raises: AddressError, HostExtraMissingError."""
        self._pool = pool
        self._server = _server(Gateway(pool))
        self._listener = _listen(address, port)
        self.url = "http://{}:{}".format(*self._listener.getsockname())
        self._thread = threading.Thread(
            target=self._server.run, args=([self._listener],), name="front", daemon=True
        )

    def __enter__(self) -> "Front":
        # Connections are accepted from now on: the socket listens already.
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._server.should_exit = True
        self._pool.stop()  # which ends every request, so that there is little to wait for
        self._thread.join()


def _server(gateway: Gateway) -> "uvicorn.Server":
    try:
        import uvicorn
    except ImportError as exc:
        raise HostExtraMissingError from exc
    config = uvicorn.Config(
        gateway,
        lifespan="off",
        ws="none",
        access_log=False,
        log_config=None,
        log_level="critical",  # an answer that breaks off is no news; the gateway logs what is
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=_DRAIN_S,
    )
    return uvicorn.Server(config)


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
