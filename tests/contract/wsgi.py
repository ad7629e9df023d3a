# SPDX-License-Identifier: Apache-2.0
"""The function as a WSGI application, without a network: requests become a function URL's events."""

import json
from collections.abc import Callable, Iterable
from typing import Any

from quickthaw.handler.function import Function
from tests.unit.handler.test_function import Context

Environ = dict[str, Any]


class WsgiFunction:
    """Answers each request with what `function` answers to its event."""

    def __init__(self, function: Function) -> None:
        self._function = function

    def __call__(self, environ: Environ, start_response: Callable[..., object]) -> Iterable[bytes]:
        answer = self._function.answer(event(environ), Context())
        json.dumps(answer)  # what Lambda would do with it
        start_response(f"{answer['statusCode']} -", list(answer["headers"].items()))
        return [answer["body"].encode()]


def event(environ: Environ) -> dict[str, Any]:
    """A request in payload format 2.0."""
    size_bytes = int(environ.get("CONTENT_LENGTH") or 0)
    headers = {
        name[5:].replace("_", "-").lower(): value for name, value in environ.items() if name[:5] == "HTTP_"
    }
    method, path = environ["REQUEST_METHOD"], environ.get("PATH_INFO") or "/"
    return {
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": path,
        "rawQueryString": environ.get("QUERY_STRING", ""),
        "headers": headers,
        "requestContext": {"http": {"method": method, "path": path}, "stage": "$default"},
        "body": environ["wsgi.input"].read(size_bytes).decode("latin-1") if size_bytes else None,
        "isBase64Encoded": False,
    }
