# SPDX-License-Identifier: Apache-2.0
"""An HTTP request → the event a function sees: payload format 2.0, as function URLs and HTTP APIs send it.

Header names are in lower case, what occurs twice is joined by commas, cookies have a list of their own. A
body that is not text travels as base64.

Source: https://docs.aws.amazon.com/lambda/latest/dg/urls-invocation.html (request payload format);
https://docs.aws.amazon.com/apigateway/latest/developerguide/http-api-develop-integrations-lambda.html.
"""

import re
import time
from base64 import b64encode
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl
from uuid import uuid4

TRACE_HEADER = "x-amzn-trace-id"
_TEXT_TYPE = re.compile(r"text/.+|application/(json|xml|javascript|.+\+json|.+\+xml)")


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """What a client asked. `path` is as it was sent, percent-encoded; header names are in lower case."""

    method: str
    path: str
    query: str
    headers: list[tuple[str, str]]
    body: bytes
    client: str  # its IP address
    protocol: str  # HTTP/1.1

    def header(self, name: str) -> str | None:
        """The header's values, joined."""
        return _joined(self.headers).get(name)


def to_event(request: HttpRequest) -> dict[str, Any]:
    """The event for `request`."""
    headers = _joined(pair for pair in request.headers if pair[0] != "cookie")
    event: dict[str, Any] = {
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": request.path,
        "rawQueryString": request.query,
        "headers": headers,
        "requestContext": _context(request, headers),
    }
    if cookies := [text.strip() for text in (request.header("cookie") or "").split(";") if text.strip()]:
        event["cookies"] = cookies
    if request.query:
        event["queryStringParameters"] = _joined(parse_qsl(request.query, keep_blank_values=True))
    return {**event, **_body(request.body, headers)}


def _context(request: HttpRequest, headers: dict[str, str]) -> dict[str, Any]:
    now = time.time()
    return {
        "accountId": "anonymous",
        "apiId": "local",
        "domainName": headers.get("host", ""),
        "domainPrefix": headers.get("host", "").partition(".")[0],
        "http": {
            "method": request.method,
            "path": request.path,
            "protocol": request.protocol,
            "sourceIp": request.client,
            "userAgent": headers.get("user-agent", ""),
        },
        "requestId": str(uuid4()),
        "routeKey": "$default",
        "stage": "$default",
        "time": time.strftime("%d/%b/%Y:%H:%M:%S +0000", time.gmtime(now)),
        "timeEpoch": int(now * 1000),
    }


def _body(body: bytes, headers: dict[str, str]) -> dict[str, Any]:
    if not body:
        return {"isBase64Encoded": False}
    content_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    if _TEXT_TYPE.fullmatch(content_type) and "content-encoding" not in headers:
        try:
            return {"body": body.decode(), "isBase64Encoded": False}
        except UnicodeDecodeError:
            pass  # it is not the text it says it is: every byte has to arrive all the same
    return {"body": b64encode(body).decode("ascii"), "isBase64Encoded": True}


def _joined(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    joined: dict[str, str] = {}
    for name, value in pairs:
        # Cookies alone are not lists: RFC 9113 has several of them joined like this.
        separator = "; " if name == "cookie" else ","
        joined[name] = f"{joined[name]}{separator}{value}" if name in joined else value
    return joined
