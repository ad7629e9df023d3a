# SPDX-License-Identifier: Apache-2.0
"""What each answer needs of ASGI: to read a body, send a head and pieces, notice a client that leaves.

Source: https://asgi.readthedocs.io/en/latest/specs/www.html.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from typing import Any

from quickthaw.snapshot.errors import FunctionError, RequestTooLargeError
from quickthaw.snapshot.host.http_answer import Head

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_logger = logging.getLogger(__name__)


class ClientGoneError(Exception):
    """The client closed its connection before it had sent its request."""


async def read_body(receive: Receive, limit_bytes: int) -> bytes:
    """The whole body. Raises: ClientGoneError, RequestTooLargeError."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        body += message.get("body", b"")
        if len(body) > limit_bytes:
            raise RequestTooLargeError(limit_bytes)
        if not message.get("more_body"):
            return bytes(body)


async def send_whole(send: Send, head: Head, body: bytes) -> None:
    """Send an answer in one piece."""
    length = [("content-length", str(len(body)))] if head.has_body else []
    await send_head(send, Head(head.status, head.headers + length))
    await send_body(send, body if head.has_body else b"", is_last=True)


async def send_head(send: Send, head: Head) -> None:
    """Send status and headers."""
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in head.headers]
    await send({"type": "http.response.start", "status": head.status, "headers": headers})


async def send_body(send: Send, data: bytes, *, is_last: bool = False) -> None:
    """Send a piece of the body now."""
    if data or is_last:
        await send({"type": "http.response.body", "body": data, "more_body": not is_last})


async def answer_until_client_leaves(answer: Coroutine[Any, Any, None], receive: Receive) -> None:
    """Run `answer`; cancel it when the client has gone.

    Raises: FunctionError where an answer broke off: the server then breaks off the body.
    """
    answering = asyncio.create_task(answer)
    leaving = asyncio.create_task(_wait_until_client_leaves(receive))
    try:
        await asyncio.wait((answering, leaving), return_when=asyncio.FIRST_COMPLETED)
    finally:
        answering.cancel()
        leaving.cancel()
        await asyncio.wait((answering, leaving))
    if answering.cancelled():
        return
    try:
        answering.result()
    except FunctionError:
        raise
    except Exception:
        _logger.exception("an answer failed in the host")
        raise


async def _wait_until_client_leaves(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
