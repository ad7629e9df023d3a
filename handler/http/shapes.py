# SPDX-License-Identifier: Apache-2.0
"""The objects of OpenAI's HTTP API that answers come in, whole or in chunks.

An answer that the invocation's deadline cut short has the finish reason "length": clients know no other word.
Source: https://platform.openai.com/docs/api-reference.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from quickthaw.handler.generation import Completion, Piece
from quickthaw.handler.token_names import TokenNames

if TYPE_CHECKING:
    from quickthaw.layers.logprobs import Logprobs

Json = dict[str, Any]


class CompletionShape:
    """/v1/completions: each choice is a text."""

    object_name = chunk_object_name = "text_completion"
    id_prefix = "cmpl-"

    def __init__(
        self, model_name: str, names: TokenNames, *, includes_usage: bool, includes_logprobs: bool
    ) -> None:
        self._names = names
        self._includes_usage = includes_usage
        self._includes_logprobs = includes_logprobs
        self._n_characters: dict[int, int] = {}  # of the tokens that each choice has listed so far
        self._head = {
            "id": self.id_prefix + os.urandom(12).hex(),
            "created": int(time.time()),
            "model": model_name,
        }

    def whole(self, pieces: Sequence[Piece], completion: Completion) -> Json:
        """The answer in one object."""
        choices = [self._whole_choice([p for p in pieces if p.choice == n]) for n in _numbers(pieces)]
        return {**self._head, "object": self.object_name, "choices": choices, "usage": completion.usage()}

    def chunks(self, pieces: Iterator[Piece], completion: Completion) -> Iterator[Json]:
        """A chunk for each token as it comes, one for each finish reason, one for the usage if asked for."""
        begun = -1  # choices come one after the other
        for piece in pieces:
            if piece.token_id is not None or piece.text:
                delta = self.delta(piece.text, is_first=piece.choice != begun)
                yield self._chunk([self._choice(piece.choice, delta, self._logprobs([piece]), None)])
                begun = piece.choice
            if piece.finish_reason is not None:
                last = self._choice(piece.choice, self.last_delta(), None, _reason(piece))
                yield self._chunk([last])
        if self._includes_usage:
            yield {**self._chunk([]), "usage": completion.usage()}

    def content(self, text: str) -> Json:
        """The whole answer's text, where this kind of object has it."""
        return {"text": text}

    def delta(self, text: str, *, is_first: bool) -> Json:  # noqa: ARG002 - a message begins with its role
        """One token's text."""
        return {"text": text}

    def last_delta(self) -> Json:
        """What comes with the finish reason."""
        return {"text": ""}

    def logprobs(self, choice: int, listed: Sequence[Logprobs]) -> Json:
        """Log probabilities; offsets count the characters of the tokens before."""
        texts = self._names.text
        offsets = []
        for each in listed:
            offsets.append(self._n_characters.get(choice, 0))
            self._n_characters[choice] = offsets[-1] + self._names.n_characters(each.token_id)
        return {
            "tokens": [texts(each.token_id) for each in listed],
            "token_logprobs": [each.logprob for each in listed],
            "top_logprobs": [_likeliest(each, self._names) for each in listed],
            "text_offset": offsets,
        }

    def _whole_choice(self, pieces: Sequence[Piece]) -> Json:
        content = self.content("".join([piece.text for piece in pieces]))
        return self._choice(pieces[0].choice, content, self._logprobs(pieces), _reason(pieces[-1]))

    def _choice(self, number: int, content: Json, logprobs: Json | None, finish_reason: str | None) -> Json:
        return {"index": number, **content, "logprobs": logprobs, "finish_reason": finish_reason}

    def _logprobs(self, pieces: Sequence[Piece]) -> Json | None:
        if not self._includes_logprobs:
            return None
        return self.logprobs(pieces[0].choice, [each for piece in pieces for each in piece.logprobs])

    def _chunk(self, choices: list[Json]) -> Json:
        chunk = {**self._head, "object": self.chunk_object_name, "choices": choices}
        return {**chunk, "usage": None} if self._includes_usage else chunk


class ChatShape(CompletionShape):
    """/v1/chat/completions: each choice is the assistant's message."""

    object_name = "chat.completion"
    chunk_object_name = "chat.completion.chunk"
    id_prefix = "chatcmpl-"

    def content(self, text: str) -> Json:
        return {"message": {"role": "assistant", "content": text, "refusal": None}}

    def delta(self, text: str, *, is_first: bool) -> Json:
        return {"delta": {"role": "assistant", "content": text} if is_first else {"content": text}}

    def last_delta(self) -> Json:
        return {"delta": {}}

    def logprobs(self, choice: int, listed: Sequence[Logprobs]) -> Json:  # noqa: ARG002 - has no offsets
        content = [
            {
                **self._named(each.token_id, each.logprob),
                "top_logprobs": [self._named(token_id, logprob) for token_id, logprob in each.top],
            }
            for each in listed
        ]
        return {"content": content, "refusal": None}

    def _named(self, token_id: int, logprob: float | None) -> Json:
        return {
            "token": self._names.text(token_id),
            "logprob": logprob,
            "bytes": self._names.byte_values(token_id),
        }


def _likeliest(each: Logprobs, names: TokenNames) -> dict[str, float] | None:
    """Token → log probability, the one that was said among them; None where nothing came before."""
    if each.logprob is None:
        return None
    return {names.text(token_id): logprob for token_id, logprob in (*each.top, (each.token_id, each.logprob))}


def _numbers(pieces: Sequence[Piece]) -> list[int]:
    return sorted({piece.choice for piece in pieces})


def _reason(piece: Piece) -> str | None:
    return "length" if piece.finish_reason == "deadline" else piece.finish_reason
