# SPDX-License-Identifier: Apache-2.0
"""A direct invocation: a plain object in, a plain object out.

    {"prompt": text or [token id, …], or "messages": […],
     "max_tokens", "temperature" (0: greedy), "top_k", "top_p", "min_p", "repetition_penalty",
     "presence_penalty", "frequency_penalty", "logit_bias", "seed", "stop", "stream", "priority"}

    {"text", "token_ids", "finish_reason", "model", "engine", "usage"}

Streamed, there is {"token_id", "text"} for each token, then one object with the rest. What fails before the
first token is answered with {"error": {"message", "type", "param", "code"}}.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from quickthaw.handler.errors import FieldError
from quickthaw.handler.fields import Fields
from quickthaw.handler.generation import Completion, Piece
from quickthaw.handler.questions import read_messages, read_prompt
from quickthaw.handler.request import Defaults, Request, read
from quickthaw.handler.session import Session


def read_request(event: Mapping[str, Any], session: Session) -> Request:
    """Raises: FieldError, one of its kinds."""
    fields = Fields(event)
    prompt, messages = read_prompt(fields), read_messages(fields)
    request = read(fields, Defaults(session.config.max_tokens, temperature=0.0))
    if (prompt is None) == (messages is None):
        found = "neither" if prompt is None else "both"
        raise FieldError("prompt", "either prompt or messages", found)
    prompts = () if prompt is None else (prompt,)
    return request._replace(generation=request.generation._replace(prompts=prompts, messages=messages))


class DirectShape:
    """The answer to a direct invocation."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def whole(self, pieces: Sequence[Piece], completion: Completion) -> dict[str, Any]:
        """The answer in one object."""
        return {
            "text": "".join([piece.text for piece in pieces]),
            "token_ids": [piece.token_id for piece in pieces if piece.token_id is not None],
            **self._end(completion),
        }

    def chunks(self, pieces: Iterator[Piece], completion: Completion) -> Iterator[dict[str, Any]]:
        """The answer as it comes."""
        for piece in pieces:
            if piece.token_id is not None:
                yield {"token_id": piece.token_id, "text": piece.text}
            elif piece.text:
                yield {"text": piece.text}
        yield self._end(completion)

    def _end(self, completion: Completion) -> dict[str, Any]:
        return {
            "finish_reason": completion.finish_reason,
            "model": self._session.model_name,
            "engine": self._session.engine_name,
            "usage": completion.usage(),
        }
