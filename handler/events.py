# SPDX-License-Identifier: Apache-2.0
"""Wire events: what a function is invoked with, and the form in which its answer goes back.

Two kinds are known: an HTTP request in payload format 2.0 (function URLs, API Gateway HTTP APIs), and
anything else that is an object, which is a direct invocation. Source:
https://docs.aws.amazon.com/lambda/latest/dg/urls-invocation.html (payload format).
"""

from __future__ import annotations

import json
from binascii import Error as Base64Error
from binascii import a2b_base64
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from quickthaw.handler.errors import MalformedRequestError, error_body, outcome
from quickthaw.handler.fields import described
from quickthaw.handler.stream import CONTENT_TYPE, events, to_json
from quickthaw.snapshot.streaming import StreamedResponse

Json = dict[str, Any]


class DirectEvent:
    """A direct invocation; `body` is the event itself."""

    def __init__(self, event: object) -> None:
        self._event = event

    def body(self) -> Mapping[str, Any]:
        """Raises: MalformedRequestError."""
        return _object(self._event, "the event")

    def whole(self, document: Mapping[str, Any]) -> Any:
        """An answer, or any other document, all at once."""
        return document

    def stream(self, chunks: Iterable[Mapping[str, Any]]) -> StreamedResponse:
        """An answer as it comes."""
        return StreamedResponse(events(chunks), CONTENT_TYPE)

    def error(self, exc: Exception) -> Any:
        """What went wrong, as an answer: Lambda would send a raised exception with its stack trace."""
        return error_body(exc)


class HttpEvent:
    """An HTTP request in payload format 2.0."""

    def __init__(self, event: Mapping[str, Any]) -> None:
        http = event["requestContext"]["http"]
        self.method = str(http.get("method", "")).upper()
        path = str(event.get("rawPath") or http.get("path") or "/")
        # API Gateway puts the name of a stage before the path, unless it is the default one.
        stage = f"/{event['requestContext'].get('stage')}/"
        self.path = (path.removeprefix(stage.rstrip("/")) if path.startswith(stage) else path).rstrip(
            "/"
        ) or "/"
        self._event = event

    def body(self) -> Mapping[str, Any]:
        """The JSON object in the body. Raises: MalformedRequestError."""
        try:
            value = json.loads(self._text(), parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as exc:
            raise MalformedRequestError(f"the body is not JSON: {exc}") from exc
        return _object(value, "the body")

    def whole(self, document: Mapping[str, Any]) -> Any:
        """An answer, or any other document, all at once."""
        return self._response(200, document)

    def buffered(self, chunks: Iterable[Mapping[str, Any]]) -> Any:
        """A streamed answer all at once, where nothing can stream it."""
        return self._wrapped(200, CONTENT_TYPE, b"".join(events(chunks)).decode())

    def stream(self, chunks: Iterable[Mapping[str, Any]]) -> StreamedResponse:
        """An answer as it comes, behind the prelude that says status and headers."""
        headers = {"cache-control": "no-cache"}
        return StreamedResponse(events(chunks), CONTENT_TYPE, status=200, headers=headers)

    def error(self, exc: Exception) -> Any:
        """What went wrong, with its status."""
        return self._response(outcome(exc).status, error_body(exc))

    def _text(self) -> str:
        body = self._event.get("body") or ""
        if not isinstance(body, str):
            raise MalformedRequestError(f"the body: expected text, found {described(body)}")
        if not self._event.get("isBase64Encoded"):
            return body
        try:
            return a2b_base64(body, strict_mode=True).decode()
        except Base64Error as exc:
            raise MalformedRequestError(f"the body is not base64: {exc}") from exc
        except UnicodeDecodeError as exc:
            raise MalformedRequestError(
                f"the body is not UTF-8: byte {exc.start} is {exc.object[exc.start]:#04x}"
            ) from exc

    def _response(self, status: int, document: Mapping[str, Any]) -> Json:
        return self._wrapped(status, "application/json", "" if self.method == "HEAD" else to_json(document))

    def _wrapped(self, status: int, content_type: str, body: str) -> Json:
        headers = {"content-type": content_type}
        return {"statusCode": status, "headers": headers, "body": body, "isBase64Encoded": False}


Event = DirectEvent | HttpEvent


def parse(event: object) -> Event:
    """Which kind of event this is.

    Raises: MalformedRequestError for an HTTP request in another payload format.
    """
    if not isinstance(event, dict):
        return DirectEvent(event)
    context = event.get("requestContext")
    if isinstance(context, dict) and isinstance(context.get("http"), dict):
        return HttpEvent(event)
    if context is not None or "httpMethod" in event:
        raise MalformedRequestError("an HTTP event: expected payload format 2.0, found another")
    return DirectEvent(event)


def _object(value: object, what: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise MalformedRequestError(f"{what}: expected a JSON object, found {described(value)}")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")
