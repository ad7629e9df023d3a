# SPDX-License-Identifier: Apache-2.0
"""The routes and objects of OpenAI's HTTP API, as far as they are served.

    GET  /healthz               is it alive
    GET  /v1/models[/ID]        the one model
    POST /v1/completions        prompt → text
    POST /v1/chat/completions   messages → message

An answer that the invocation's deadline cut short has the finish reason "length": clients know no other word.
Source: https://platform.openai.com/docs/api-reference.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from quickthaw.handler.errors import FieldError, MethodNotAllowedError, ModelNotFoundError, RouteNotFoundError
from quickthaw.handler.fields import Fields, described
from quickthaw.handler.request import Defaults, Request, read, read_messages, read_prompt
from quickthaw.handler.session import Completion, Piece, Session

Json = dict[str, Any]

_TEMPERATURE = 1.0  # OpenAI's default
_MODELS = "/v1/models"


class CompletionShape:
    """/v1/completions: the answer is a text."""

    object_name = chunk_object_name = "text_completion"
    id_prefix = "cmpl-"

    def __init__(self, model_name: str, *, includes_usage: bool) -> None:
        self._includes_usage = includes_usage
        self._head = {
            "id": self.id_prefix + os.urandom(12).hex(),
            "created": int(time.time()),
            "model": model_name,
        }

    def whole(self, pieces: Sequence[Piece], completion: Completion) -> Json:
        """The answer in one object."""
        text = "".join([piece.text for piece in pieces])
        choice = {"index": 0, **self.content(text), "logprobs": None, "finish_reason": _reason(completion)}
        return {**self._head, "object": self.object_name, "choices": [choice], "usage": completion.usage()}

    def chunks(self, pieces: Iterator[Piece], completion: Completion) -> Iterator[Json]:
        """A chunk for each token as it comes, one with the finish reason, one with the usage if asked for."""
        for index, piece in enumerate(pieces):
            if piece.token_id is not None or piece.text:
                yield self._chunk([self._choice(self.delta(piece.text, is_first=index == 0), None)])
        yield self._chunk([self._choice(self.last_delta(), _reason(completion))])
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

    def _choice(self, delta: Json, finish_reason: str | None) -> Json:
        return {"index": 0, **delta, "logprobs": None, "finish_reason": finish_reason}

    def _chunk(self, choices: list[Json]) -> Json:
        chunk = {**self._head, "object": self.chunk_object_name, "choices": choices}
        return {**chunk, "usage": None} if self._includes_usage else chunk


class ChatShape(CompletionShape):
    """/v1/chat/completions: the answer is the assistant's message."""

    object_name = "chat.completion"
    chunk_object_name = "chat.completion.chunk"
    id_prefix = "chatcmpl-"

    def content(self, text: str) -> Json:
        return {"message": {"role": "assistant", "content": text, "refusal": None}}

    def delta(self, text: str, *, is_first: bool) -> Json:
        return {"delta": {"role": "assistant", "content": text} if is_first else {"content": text}}

    def last_delta(self) -> Json:
        return {"delta": {}}


def read_completion(body: Mapping[str, Any], session: Session) -> tuple[Request, CompletionShape]:
    """Raises: FieldError, ModelNotFoundError."""
    fields = Fields(body)
    _check_model(fields, session)
    prompt = read_prompt(fields)
    if prompt is None:
        raise FieldError("prompt", "a string or a list of token ids", "nothing")
    request = read(fields, _defaults(session))
    request = request._replace(generation=request.generation._replace(prompt=prompt))
    return request, CompletionShape(session.model_name, includes_usage=request.includes_usage)


def read_chat(body: Mapping[str, Any], session: Session) -> tuple[Request, ChatShape]:
    """Raises: FieldError, ModelNotFoundError."""
    fields = Fields(body)
    _check_model(fields, session)
    messages = read_messages(fields)
    if messages is None:
        raise FieldError("messages", "a list of at least one object", "nothing")
    # The newer name; a request with both is refused for the older one being left over.
    is_new = fields.has("max_completion_tokens")
    max_tokens_field = "max_completion_tokens" if is_new else "max_tokens"
    request = read(fields, _defaults(session), max_tokens_field=max_tokens_field)
    request = request._replace(generation=request.generation._replace(messages=messages))
    return request, ChatShape(session.model_name, includes_usage=request.includes_usage)


Reader = Callable[[Mapping[str, Any], Session], tuple[Request, CompletionShape]]
POSTS: Mapping[str, Reader] = {"/v1/completions": read_completion, "/v1/chat/completions": read_chat}


def reader(method: str, path: str) -> Reader | None:
    """Who reads a POST to `path`; None where `document` answers.

    Raises: RouteNotFoundError, MethodNotAllowedError.
    """
    is_document = path == "/healthz" or path == _MODELS or path.startswith(_MODELS + "/")
    if path not in POSTS and not is_document:
        raise RouteNotFoundError(
            f"no route {method} {path}: there are /healthz, {_MODELS}, {', '.join(POSTS)}"
        )
    allowed = ("GET", "HEAD") if is_document else ("POST",)
    if method not in allowed:
        raise MethodNotAllowedError(f"{path}: expected {' or '.join(allowed)}, found {method}")
    return POSTS.get(path)


def document(path: str, session: Session) -> Json:
    """What a GET returns. Raises: ModelNotFoundError."""
    model = {"id": session.model_name, "object": "model", "created": 0, "owned_by": "quickthaw"}
    if path == "/healthz":
        return {"status": "ok", "model": session.model_name, "engine": session.engine_name}
    if path == _MODELS:
        return {"object": "list", "data": [model]}
    _check_name(path.removeprefix(_MODELS + "/"), session)
    return model


def _check_model(fields: Fields, session: Session) -> None:
    name = fields.text("model")
    if name is not None:
        _check_name(name, session)


def _check_name(name: str, session: Session) -> None:
    if name != session.model_name:
        raise ModelNotFoundError(f"model: expected {session.model_name!r}, found {described(name)}")


def _defaults(session: Session) -> Defaults:
    return Defaults(session.config.max_tokens, _TEMPERATURE)


def _reason(completion: Completion) -> str | None:
    return "length" if completion.finish_reason == "deadline" else completion.finish_reason
