# SPDX-License-Identifier: Apache-2.0
"""What a function returned → an HTTP response: payload format 2.0, or a streamed answer and its prelude.

    whole      {"statusCode", "headers", "cookies", "body", "isBase64Encoded"}, or anything else: 200 and JSON
    streamed   {"statusCode", "headers", "cookies"}, 8 NUL bytes, the body's bytes

Source: https://docs.aws.amazon.com/lambda/latest/dg/urls-invocation.html (response payload format);
https://docs.aws.amazon.com/lambda/latest/dg/runtimes-custom.html (response streaming).
"""

import json
import re
from base64 import b64decode
from collections.abc import Mapping
from typing import Any, NamedTuple

from quickthaw.snapshot.errors import BadAnswerError
from quickthaw.snapshot.streaming import PRELUDE_END

_PRELUDE_LIMIT_BYTES = 65_536
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, section 5.6.2
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
# The connection to the client is the server's business.
_NOT_PASSED_ON = {"connection", "content-length", "keep-alive", "transfer-encoding", "upgrade"}


class Head(NamedTuple):
    """The status and the headers of a response, as they go to the client."""

    status: int
    headers: list[tuple[str, str]]

    @property
    def is_event_stream(self) -> bool:
        """Whether the body is made of server-sent events."""
        return dict(self.headers).get("content-type", "").startswith("text/event-stream")

    @property
    def has_body(self) -> bool:
        """Whether this status comes with a body."""
        return self.status not in (204, 304)


def read_whole(result: bytes) -> tuple[Head, bytes]:
    """A result that was not streamed. Raises: BadAnswerError when it is no response."""
    try:
        document = json.loads(result)
    except ValueError as exc:
        raise BadAnswerError(f"not JSON: {exc}") from exc
    if not isinstance(document, Mapping) or "statusCode" not in document:
        body = document.encode() if isinstance(document, str) else result
        return Head(200, [("content-type", "application/json")]), body
    return _head(document, "application/json"), _body(document)


def read_prelude(data: bytes) -> tuple[Head, bytes] | None:
    """The head that a streamed answer begins with, and the part of its body that came along.

    None while the prelude is incomplete.
    Raises: BadAnswerError when it is no prelude.
    """
    prelude, end, body = data.partition(PRELUDE_END)
    if not end:
        if len(data) > _PRELUDE_LIMIT_BYTES:
            raise BadAnswerError(f"no end of the prelude within {_PRELUDE_LIMIT_BYTES} bytes")
        return None
    try:
        document = json.loads(prelude)
    except ValueError as exc:
        raise BadAnswerError(f"the prelude is not JSON: {exc}") from exc
    if not isinstance(document, Mapping):
        raise BadAnswerError("the prelude is not an object")
    return _head({"statusCode": 200, **document}, "application/octet-stream"), body


def _head(document: Mapping[str, Any], content_type: str) -> Head:
    status = document["statusCode"]
    if not isinstance(status, int | str) or not re.fullmatch(r"[2-5]\d\d", str(status)):
        raise BadAnswerError(f"statusCode: expected 200 to 599, found {status!r:.40}")
    named = document.get("headers") or {}
    cookies = document.get("cookies") or []
    if not isinstance(named, Mapping) or not isinstance(cookies, list):
        raise BadAnswerError("expected headers in an object and cookies in a list")
    headers = [(name.lower(), _text(value)) for name, value in named.items()]
    headers = [pair for pair in headers if pair[0] not in _NOT_PASSED_ON]
    if "content-type" not in dict(headers):
        headers.append(("content-type", content_type))
    headers += [("set-cookie", _text(cookie)) for cookie in cookies]
    for name, value in headers:
        if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            raise BadAnswerError(f"not an HTTP header: {name!r:.40}: {value!r:.40}")
    return Head(int(status), headers)


def _body(document: Mapping[str, Any]) -> bytes:
    body = document.get("body")
    if not isinstance(body, str | None):
        raise BadAnswerError(f"body: expected text, found {type(body).__name__}")
    try:
        return (
            b64decode(body or "", validate=True) if document.get("isBase64Encoded") else (body or "").encode()
        )
    except ValueError as exc:
        raise BadAnswerError(f"body: {exc}") from exc


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
