# SPDX-License-Identifier: Apache-2.0
"""The Lambda Invoke API, as AWS's SDKs and command line call it: `boto3.client("lambda", endpoint_url=…)`.

    POST /2015-03-31/functions/NAME/invocations                      the answer, whole; or 202 at once
    POST /2021-11-15/functions/NAME/response-streaming-invocations   as it comes, see `event_stream`

A function that failed is not a failed call: the status is 200, X-Amz-Function-Error says Unhandled, and the
body is Lambda's error document. A call that never reached the function has another status, and a type that
SDKs raise as an exception. Signatures are not looked at.

Source: https://docs.aws.amazon.com/lambda/latest/api/API_Invoke.html and …_InvokeWithResponseStream.html;
https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html.
"""

import json
import re
from base64 import b64decode
from contextlib import closing
from dataclasses import dataclass
from urllib.parse import parse_qs
from uuid import uuid4

import orjson

from quickthaw.snapshot.errors import (
    FunctionError,
    InvocationRefusedError,
    SnapshotError,
)
from quickthaw.snapshot.host import event_stream
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
from quickthaw.snapshot.host.background_events import BackgroundEvents
from quickthaw.snapshot.host.hosted_function import VERSION, HostedFunction
from quickthaw.snapshot.host.http_answer import Head
from quickthaw.snapshot.host.http_request import TRACE_HEADER
from quickthaw.snapshot.host.invoke_error import error_document, refusal
from quickthaw.snapshot.host.log_tail import LogTail
from quickthaw.snapshot.host.pool import Pool
from quickthaw.snapshot.host.sizes import EVENT_LIMIT_BYTES, RESPONSE_LIMIT_BYTES, response_too_large

PREFIXES = ("/2015-03-31/functions/", "/2021-11-15/functions/")
_ROUTE = re.compile(
    r"/2015-03-31/functions/(?P<name>[^/]+)/invocations"
    r"|/2021-11-15/functions/(?P<streamed>[^/]+)/response-streaming-invocations"
)
_BACKGROUND_LIMIT_BYTES = 1024 * 1024  # of an event that nobody waits for
_CLIENT_CONTEXT_LIMIT_BYTES = 3583
_JSON = ("content-type", "application/json")
_FAILED = ("x-amz-function-error", "Unhandled")
_EXECUTED_VERSION = ("x-amz-executed-version", VERSION)


@dataclass(frozen=True, slots=True)
class _Call:
    """What a client asks."""

    is_streamed: bool
    kind: str  # RequestResponse, Event, DryRun
    wants_log: bool
    trace_id: str | None
    client_context: str | None


class InvokeApi:
    """Answers what lies under PREFIXES."""

    def __init__(self, pool: Pool, function: HostedFunction) -> None:
        self._pool = pool
        self._function = function
        self._background = BackgroundEvents(pool)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request."""
        try:
            call = self._read_call(scope)
            event = await self._read_event(call, receive)
            if call.is_streamed and call.kind == "RequestResponse":
                await answer_until_client_leaves(self._stream(call, event, send), receive)
            else:
                await send_whole(send, *await self._answer(call, event))
        except ClientGoneError:
            return
        except SnapshotError as exc:
            head, body = refusal(exc)
            await send_whole(send, Head(head.status, [*head.headers, _request_id(str(uuid4()))]), body)

    def stop(self) -> None:
        """Drop the events that nobody waits for."""
        self._background.stop()

    # --- the call ---

    def _read_call(self, scope: Message) -> _Call:
        """Raises: InvocationRefusedError"""
        route = _ROUTE.fullmatch(scope["path"])
        if route is None:
            raise InvocationRefusedError(404, "UnknownOperationException", "no such operation here")
        if scope["method"] != "POST":
            raise InvocationRefusedError(405, "MethodNotAllowedException", "invoke with POST")
        name = route["name"] or route["streamed"]
        qualifier = parse_qs(scope["query_string"].decode("latin-1")).get("Qualifier", [VERSION])[0]
        if not self._function.is_named(name) or qualifier != VERSION:
            raise InvocationRefusedError(
                404,
                "ResourceNotFoundException",
                f"Function not found: {name}, {qualifier}; this host has {self._function.arn}",
            )
        headers = {key: value.decode("latin-1") for key, value in scope["headers"]}
        kind = headers.get(b"x-amz-invocation-type", "RequestResponse")
        is_streamed = route["streamed"] is not None
        if kind not in ("RequestResponse", "DryRun") and (kind != "Event" or is_streamed):
            raise InvocationRefusedError(
                400, "InvalidParameterValueException", f"X-Amz-Invocation-Type: no such type here: {kind:.40}"
            )
        return _Call(
            is_streamed,
            kind,
            headers.get(b"x-amz-log-type") == "Tail",
            headers.get(TRACE_HEADER.encode()),
            _client_context(headers.get(b"x-amz-client-context")),
        )

    async def _read_event(self, call: _Call, receive: Receive) -> bytes:
        """Raises: RequestTooLargeError, InvocationRefusedError when it is not JSON."""
        limit_bytes = _BACKGROUND_LIMIT_BYTES if call.kind == "Event" else EVENT_LIMIT_BYTES
        event = await read_body(receive, limit_bytes) or b"{}"
        if not _is_json(event):
            raise InvocationRefusedError(
                400, "InvalidRequestContentException", "Could not parse request body into json"
            )
        return event

    async def _invoke(self, call: _Call, event: bytes, log: LogTail | None) -> AsyncInvocation:
        return await self._pool.invoke(event, call.trace_id, call.client_context, log)

    # --- the answer ---

    async def _answer(self, call: _Call, event: bytes) -> tuple[Head, bytes]:
        """Raises: HostError"""
        if call.kind == "DryRun":
            return Head(204, [_request_id(str(uuid4()))]), b""
        if call.kind == "Event":
            return Head(202, [_JSON, _request_id(self._background.add(event, call.trace_id))]), b""
        log = LogTail(self._function.memory_size_mib) if call.wants_log else None
        headers = [_JSON, _EXECUTED_VERSION]
        invocation: AsyncInvocation | None = None
        try:
            invocation = await self._invoke(call, event, log)
            body = await _read_whole(invocation)
            request_id = invocation.request_id
        except FunctionError as exc:
            request_id = str(uuid4()) if invocation is None else invocation.request_id  # None: no start
            headers.append(_FAILED)
            body = error_document(exc, request_id)
        headers.append(_request_id(request_id))
        if log is not None:
            headers.append(("x-amz-log-result", log.encoded()))
        return Head(200, headers), body

    async def _stream(self, call: _Call, event: bytes, send: Send) -> None:
        """Send the answer as it comes. However it ends, the last message says so."""
        log = LogTail(self._function.memory_size_mib) if call.wants_log else None
        try:
            invocation = await self._invoke(call, event, log)
        except FunctionError as exc:  # it did not start
            request_id = str(uuid4())
            await _send_stream_head(send, request_id)
            await send_body(send, _complete(exc, request_id, log), is_last=True)
            return
        except SnapshotError as exc:
            await send_whole(send, *refusal(exc))
            return
        with closing(invocation):
            await _send_stream_head(send, invocation.request_id)
            error = None
            try:
                async for chunk in invocation:
                    for message in event_stream.payload_chunks(chunk.data):
                        await send_body(send, message)
            except FunctionError as exc:
                error = exc
        await send_body(send, _complete(error, invocation.request_id, log), is_last=True)


def _is_json(text: bytes) -> bool:
    try:
        orjson.loads(text)
    except ValueError:
        # It also refuses what JSON allows: a lone surrogate, very deep nesting.
        try:
            json.loads(text, parse_constant=_refuse)
        except (ValueError, RecursionError):
            return False
    return True


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _client_context(encoded: str | None) -> str | None:
    """The JSON that X-Amz-Client-Context holds. Raises: InvocationRefusedError."""
    if encoded is None:
        return None
    try:
        if len(encoded) > _CLIENT_CONTEXT_LIMIT_BYTES:
            raise ValueError(f"more than {_CLIENT_CONTEXT_LIMIT_BYTES} bytes")
        return json.dumps(json.loads(b64decode(encoded, validate=True)))  # ASCII, and in one line
    except ValueError as exc:
        message = f"Client context must be a valid Base64-encoded JSON object: {exc}"
        raise InvocationRefusedError(400, "InvalidRequestContentException", message) from exc


async def _read_whole(invocation: AsyncInvocation) -> bytes:
    """All of an answer, also of one that is streamed. Raises: FunctionError."""
    with closing(invocation):
        body = b""
        async for chunk in invocation:
            body = body + chunk.data if body else chunk.data
            if len(body) > RESPONSE_LIMIT_BYTES:
                raise response_too_large()
        return body


async def _send_stream_head(send: Send, request_id: str) -> None:
    content_type = ("content-type", event_stream.CONTENT_TYPE)
    await send_head(send, Head(200, [content_type, _EXECUTED_VERSION, _request_id(request_id)]))


def _complete(error: FunctionError | None, request_id: str, log: LogTail | None) -> bytes:
    log_result = None if log is None else log.encoded()
    if error is None:
        return event_stream.invoke_complete(log_result=log_result)
    details = error_document(error, request_id).decode()
    return event_stream.invoke_complete(error.error_type, details, log_result)


def _request_id(request_id: str) -> tuple[str, str]:
    return "x-amzn-requestid", request_id
