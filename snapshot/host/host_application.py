# SPDX-License-Identifier: Apache-2.0
"""Everything that is served on the host's port, told apart by its path.

    /_quickthaw/…                      what the host says of itself
    /2015-03-31/functions/…, /2021-11-15/functions/…    Lambda's Invoke API
    all else                           the function's own, as HTTP

One port, as whoever has one address has all of it, and no function has routes under Lambda's dates.
"""

from quickthaw.snapshot.host.asgi import Message, Receive, Send
from quickthaw.snapshot.host.gateway import Gateway
from quickthaw.snapshot.host.hosted_function import HostedFunction
from quickthaw.snapshot.host.invoke_api import PREFIXES, InvokeApi
from quickthaw.snapshot.host.pool import Pool
from quickthaw.snapshot.host.status_page import PREFIX, StatusPage


class HostApplication:
    """An ASGI application; its pool is open while it is."""

    def __init__(self, pool: Pool, function: HostedFunction) -> None:
        self._pool = pool
        self._gateway = Gateway(pool)
        self._status_page = StatusPage(pool, function)
        self._invoke_api = InvokeApi(pool, function)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request."""
        path = scope["path"]
        if path.startswith(PREFIXES):
            await self._invoke_api(scope, receive, send)
        elif path.startswith(PREFIX):
            await self._status_page(scope, receive, send)
        else:
            await self._gateway(scope, receive, send)

    async def __aenter__(self) -> None:
        await self._pool.__aenter__()

    async def __aexit__(self, *exc_info: object) -> None:
        await self._pool.__aexit__(*exc_info)

    async def stop(self) -> None:
        """Give up the events that wait to be tried again, and end every request."""
        self._invoke_api.stop()
        await self._pool.stop()
