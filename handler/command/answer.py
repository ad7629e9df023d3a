# SPDX-License-Identifier: Apache-2.0
"""Reads what the function answers, in whichever shape the event asked for, as it arrives.

    streamed         data: {json}, blank line, …, data: [DONE]
    not streamed     {json}
    HTTP, streamed   {"statusCode": …}, 8 NUL bytes, then one of the two above
    HTTP, buffered   {"statusCode": …, "body": "{json}"}

Each {json} is a token of a direct invoke, a choice in OpenAI's shape, or an error.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from quickthaw.snapshot.errors import FunctionError
from quickthaw.snapshot.streaming import PRELUDE_END

_PIECE_FIELDS = {"text", "token_id", "token_ids", "finish_reason"}


@dataclass(slots=True)
class Answer:
    """The answer so far. `last` is the message that said why it ended."""

    token_ids: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    last: Mapping[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """All of the text."""
        return "".join(self.texts)

    def take(self, message: Mapping[str, Any]) -> str:
        """Add one message; return the text it brought.

        Raises: FunctionError when the message is an error.
        """
        if message.get("error"):
            raise _error(message["error"])
        if message.get("usage"):
            self.last = {**self.last, "usage": message["usage"]}
        piece = _piece(message)
        if not _PIECE_FIELDS & piece.keys() and "usage" not in message:
            piece = {
                "text": json.dumps(message, ensure_ascii=False)
            }  # a document: all that it brings is itself
        if "token_id" in piece:
            self.token_ids.append(piece["token_id"])
        self.token_ids += piece.get("token_ids", ())
        if piece.get("finish_reason"):
            self.last = {**self.last, **message, "finish_reason": piece["finish_reason"]}
        text = str(piece.get("text") or "")
        self.texts.append(text)
        return text


def read_messages(chunks: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Yield each JSON document of an answer as soon as it is complete."""
    unread = b""
    for chunk in chunks:
        *complete, unread = (unread + chunk).rpartition(PRELUDE_END)[2].split(b"\n\n")
        for event in complete:
            data = event.removeprefix(b"data: ")
            if data != b"[DONE]":
                yield json.loads(data)
    if unread:
        document = json.loads(unread)
        if "statusCode" not in document:
            yield document
        elif document.get("body"):
            yield _of_body(document["body"])


def _of_body(body: str) -> dict[str, Any]:
    try:
        document = json.loads(body)
    except ValueError:
        return {"text": body}  # /metrics, for one, is no JSON
    return document if isinstance(document, dict) else {"text": body}


def _piece(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part of a message that carries text: itself, or OpenAI's first choice."""
    if not message.get("choices"):
        return message
    choice = message["choices"][0]
    said = choice.get("delta") or choice.get("message") or {}
    return {"text": choice.get("text", said.get("content")), "finish_reason": choice.get("finish_reason")}


def _error(error: object) -> FunctionError:
    if isinstance(error, Mapping):
        return FunctionError(str(error.get("type") or "Error"), str(error.get("message") or error))
    return FunctionError("Error", str(error))
