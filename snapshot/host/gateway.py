# SPDX-License-Identifier: Apache-2.0
"""HTTP in front of a function: a request becomes an event, the answer goes back as it comes.

    answered in one piece     its status, headers, cookies and body
    streamed                  status and headers from the prelude, then each chunk, flushed
    failed before that        502, at the deadline 504; not begun 429 or 503; a request over 6 MiB 413
    failed after that         an error event if these are server-sent events, and a body without its end
    the client has gone       a function that streams is hung up on, and ends at its next write

This is an ASGI application; `front` serves it. Source: https://asgi.readthedocs.io/en/latest/specs/www.html.
"""

import json
from contextlib import closing
from typing import Protocol

from quickthaw.snapshot.errors import BadAnswerError, FunctionError, RequestTooLargeError, SnapshotError
from quickthaw.snapshot.host.asgi import (
    ClientGoneError,
    Message,
    Receive,
    Send,
    answer_until_client_leaves,
    read_body,
    send_body,
    send_head,
    send_whole,
)
from quickthaw.snapshot.host.async_invocation import AsyncInvocation
from quickthaw.snapshot.host.http_answer import Head, read_prelude, read_whole
from quickthaw.snapshot.host.http_error import error_event, error_response
from quickthaw.snapshot.host.http_request import TRACE_HEADER, HttpRequest, to_event
from quickthaw.snapshot.host.sizes import EVENT_LIMIT_BYTES
from quickthaw.snapshot.streaming import HTTP_INTEGRATION_TYPE

_ERROR_EVENT = b'data: {"error"'


class Invoker(Protocol):
    """What has a function answer: a pool of its instances, or this process."""

    async def invoke(self, event: bytes, trace_id: str | None = None) -> AsyncInvocation:
        """Raises: SnapshotError when there is to be no answer."""


class Gateway:
    """Answers HTTP requests with what a function says."""

    def __init__(self, invoker: Invoker) -> None:
        self._invoker = invoker

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request, unless its client goes away first.

        Raises: FunctionError where an answer broke off: the server then breaks off the body.
        """
        try:
            request = _request(scope, await read_body(receive, EVENT_LIMIT_BYTES))
        except ClientGoneError:
            return
        except RequestTooLargeError as exc:
            await send_whole(send, *error_response(exc))
            return
        await answer_until_client_leaves(self._answer(request, send), receive)

    async def _answer(self, request: HttpRequest, send: Send) -> None:
        try:
            invocation = await self._invoker.invoke(_event(request), request.header(TRACE_HEADER))
        except SnapshotError as exc:
            await send_whole(send, *error_response(exc))
            return
        with closing(invocation):
            try:
                head, body = await _begin(invocation)
            except FunctionError as exc:
                await send_whole(send, *error_response(exc))
                return
            if invocation.is_streamed:
                await _send_stream(send, head, body, invocation)
            else:
                await send_whole(send, head, body)


# --- the request ---


def _request(scope: Message, body: bytes) -> HttpRequest:
    return HttpRequest(
        method=scope["method"],
        path=scope["raw_path"].decode("latin-1"),
        query=scope["query_string"].decode("latin-1"),
        headers=[(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]],
        body=body,
        client=scope["client"][0] if scope.get("client") else "",
        protocol=f"HTTP/{scope['http_version']}",
    )


def _event(request: HttpRequest) -> bytes:
    """Raises: RequestTooLargeError."""
    event = json.dumps(to_event(request)).encode()
    if len(event) > EVENT_LIMIT_BYTES:
        raise RequestTooLargeError(EVENT_LIMIT_BYTES)
    return event


# --- the answer ---


async def _begin(invocation: AsyncInvocation) -> tuple[Head, bytes]:
    """Wait for an answer that is whole, or for as much of a stream as has its status.

    Raises: FunctionError
    """
    data = b""
    async for chunk in invocation:
        data += chunk.data
        if invocation.is_streamed and (begun := _begun(invocation, data)) is not None:
            return begun
    begun = _begun(invocation, data) if invocation.is_streamed else read_whole(data)
    if begun is None:
        raise BadAnswerError("it ended within its prelude")
    return begun


def _begun(invocation: AsyncInvocation, data: bytes) -> tuple[Head, bytes] | None:
    """Status, headers and the first of the body; None while they are incomplete."""
    if invocation.content_type == HTTP_INTEGRATION_TYPE:
        return read_prelude(data)
    return Head(200, [("content-type", invocation.content_type)]), data


async def _send_stream(send: Send, head: Head, body: bytes, invocation: AsyncInvocation) -> None:
    """Send what there is of the body, then each chunk as it comes.

    Raises: FunctionError where the answer breaks off.
    """
    await send_head(send, head)
    try:
        await send_body(send, body)
        async for chunk in invocation:
            body = chunk.data
            await send_body(send, body)
    except FunctionError as exc:
        # Unless the function has said it itself, or was cut off within an event.
        if head.is_event_stream and body.endswith(b"\n\n") and not body.startswith(_ERROR_EVENT):
            await send_body(send, error_event(exc))
        raise
    await send_body(send, b"", is_last=True)
