# SPDX-License-Identifier: Apache-2.0
"""HTTP requests as Lambda functions are sent them, and the responses that their senders expect.

    payload 2.0      function URLs, API Gateway HTTP APIs
    payload 1.0      API Gateway REST APIs, and HTTP APIs that ask for it
    load balancer    an ALB's target group

A path is what follows stage and base path, as far as the event tells them apart. Source:
https://docs.aws.amazon.com/apigateway/latest/developerguide/http-api-develop-integrations-lambda.html,
https://docs.aws.amazon.com/elasticloadbalancing/latest/application/lambda-functions.html.
"""

from __future__ import annotations

import json
from binascii import Error as Base64Error
from binascii import a2b_base64
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NoReturn

from quickthaw.handler.errors import BodyTooLargeError, MalformedRequestError, outcome, public_error_body
from quickthaw.handler.fields import described
from quickthaw.handler.stream import CONTENT_TYPE, events, to_json
from quickthaw.snapshot.streaming import StreamedResponse

JSON_TYPE = "application/json"
_BODY_LIMIT_BYTES = 6 << 20  # what Lambda's Invoke takes


class HttpEvent:
    """One request; `headers` are what every response to it says, whatever else it says."""

    can_be_streamed = True
    is_always_streamed = False  # whether what is not streamed must still have a stream's form

    def __init__(self, event: Mapping[str, Any], method: object, path: str) -> None:
        self._event = event
        self._request_headers = dict(_headers(event))
        self.method = str(method or "").upper()
        self.path = "/" + path.strip("/")
        self.headers: dict[str, str] = {}

    def header(self, name: str) -> str | None:
        """A request header by its name in lower case; what came several times is joined by commas."""
        return self._request_headers.get(name)

    def body(self) -> Mapping[str, Any]:
        """The JSON object in the body. Raises: MalformedRequestError, BodyTooLargeError."""
        try:
            value = json.loads(self._text(), parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as exc:
            raise MalformedRequestError(f"the body is not JSON: {exc}") from exc
        return json_object(value, "the body")

    def whole(self, document: Mapping[str, Any]) -> Any:
        """An answer, or any other document, all at once."""
        return self.response(200, to_json(document))

    def buffered(self, chunks: Iterable[Mapping[str, Any]]) -> Any:
        """A streamed answer all at once, where nothing can stream it."""
        return self.response(200, b"".join(events(chunks)).decode(), CONTENT_TYPE)

    def stream(self, chunks: Iterable[Mapping[str, Any]]) -> StreamedResponse:
        """An answer as it comes, behind the prelude that says status and headers."""
        headers = {**self.headers, "cache-control": "no-cache"}
        return StreamedResponse(events(chunks), CONTENT_TYPE, status=200, headers=headers)

    def error(self, exc: Exception) -> Any:
        """What went wrong, with its status."""
        headers = getattr(exc, "headers", {})
        return self.response(outcome(exc).status, to_json(public_error_body(exc)), headers=headers)

    def response(
        self,
        status: int,
        body: str = "",
        content_type: str = JSON_TYPE,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """Anything, in the form that this kind of event is answered in."""
        headers = {**self.headers, **(headers or {})}
        body = "" if self.method == "HEAD" else body
        if self.is_always_streamed and self.can_be_streamed:
            return StreamedResponse([body.encode()], content_type, status=status, headers=headers)
        headers = {"content-type": content_type, **headers}
        return {"statusCode": status, "headers": headers, "body": body, "isBase64Encoded": False}

    def _text(self) -> str:
        body = self._event.get("body") or ""
        if not isinstance(body, str):
            raise MalformedRequestError(f"the body: expected text, found {described(body)}")
        if len(body) > _BODY_LIMIT_BYTES:
            raise BodyTooLargeError(
                f"the body: expected at most {_BODY_LIMIT_BYTES} bytes, found {len(body)}"
            )
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


class Payload2Event(HttpEvent):
    """From a function URL or an HTTP API. The latter cannot pass a stream on."""

    def __init__(self, event: Mapping[str, Any], context: Mapping[str, Any]) -> None:
        http = context["http"]
        path = str(event.get("rawPath") or http.get("path") or "/")
        route = str(event.get("routeKey") or "").rpartition(" ")[2]
        super().__init__(event, http.get("method"), _inside(path, route, event, context))
        self.can_be_streamed = ".execute-api." not in str(context.get("domainName"))


class Payload1Event(HttpEvent):
    """From a REST API, or an HTTP API that was told to send this."""

    def __init__(self, event: Mapping[str, Any], context: Mapping[str, Any]) -> None:
        path = _inside(str(event.get("path") or "/"), str(event.get("resource") or ""), event, context)
        super().__init__(event, event["httpMethod"], path)


class LoadBalancerEvent(HttpEvent):
    """From an ALB, which passes no stream on, and wants headers in the form in which it sent its own."""

    can_be_streamed = False

    def __init__(self, event: Mapping[str, Any]) -> None:
        super().__init__(event, event["httpMethod"], str(event.get("path") or "/"))

    def response(
        self,
        status: int,
        body: str = "",
        content_type: str = JSON_TYPE,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        response = super().response(status, body, content_type, headers)
        response["statusDescription"] = f"{status} {_PHRASES[status]}"
        if "multiValueHeaders" in self._event:
            response["multiValueHeaders"] = {name: [value] for name, value in response.pop("headers").items()}
        return response


# http.HTTPStatus would cost 3 ms; these are all that leave the function.
_PHRASES = {
    200: "OK",
    204: "No Content",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    405: "Method Not Allowed",
    413: "Content Too Large",
    429: "Too Many Requests",
    499: "Client Closed Request",
    500: "Internal Server Error",
    502: "Bad Gateway",
    503: "Service Unavailable",
    504: "Gateway Timeout",
}


def json_object(value: object, what: str) -> Mapping[str, Any]:
    """`value`, which is an object. Raises: MalformedRequestError."""
    if not isinstance(value, dict):
        raise MalformedRequestError(f"{what}: expected a JSON object, found {described(value)}")
    return value


def _headers(event: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """In lower case; where both forms are there, the one that has every value."""
    several, single = event.get("multiValueHeaders"), event.get("headers")
    for name, value in single.items() if isinstance(single, dict) else ():
        yield name.lower(), str(value)
    for name, values in several.items() if isinstance(several, dict) else ():
        if isinstance(values, list):
            yield name.lower(), ",".join(map(str, values))


def _inside(path: str, route: str, event: Mapping[str, Any], context: Mapping[str, Any]) -> str:
    """The path within the API.

    A route that names it, its parameters filled in, tells where it begins: before it comes the base path
    under which a custom domain maps the API, or the stage. Where the route is a catch-all, an HTTP API's path
    still begins with its stage, unless that is the default one.
    """
    parameters = event.get("pathParameters")
    for name, value in parameters.items() if isinstance(parameters, dict) else ():
        for placeholder in (f"{{{name}}}", f"{{{name}+}}"):
            route = route.replace(placeholder, str(value).strip("/"))
    if route.startswith("/") and path.rstrip("/").endswith(route.rstrip("/")):
        return route
    stage = f"/{context.get('stage')}"
    return path.removeprefix(stage) if f"{path}/".startswith(f"{stage}/") else path


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")
