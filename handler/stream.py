# SPDX-License-Identifier: Apache-2.0
"""Server-sent events: a streamed answer as bytes.

    data: {…}              one for each token
    data: {"error": {…}}   in place of what would follow, when the answer fails after its first byte
    data: [DONE]           the end of an answer that is whole

Each is followed by an empty line.

Source: https://html.spec.whatwg.org/multipage/server-sent-events.html; `[DONE]` is OpenAI's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from quickthaw.handler.errors import public_error_body

CONTENT_TYPE = "text/event-stream"
DONE = b"data: [DONE]\n\n"


def events(
    chunks: Iterable[Mapping[str, Any]],
    describe: Callable[[Exception], Mapping[str, Any]] = public_error_body,
) -> Iterator[bytes]:
    """An event for each chunk as it comes, then the end; an error becomes an event, and goes on."""
    try:
        for chunk in chunks:
            yield data(chunk)
    except Exception as exc:
        yield data(describe(exc))
        raise
    yield DONE


def data(document: Mapping[str, Any]) -> bytes:
    """One event. JSON holds no line break, so it is one line."""
    return b"data: " + to_json(document).encode() + b"\n\n"


# Made once: json.dumps would make one for each token. awslambdaric has imported json already; orjson would
# cost 1.4 to 6 ms before the first token, and a token is an object of a few fields.
_encode = json.JSONEncoder(separators=(",", ":")).encode


def to_json(document: Mapping[str, Any]) -> str:
    """Compact, and ASCII, so that a lone surrogate in a quoted value does no harm."""
    return _encode(document)
