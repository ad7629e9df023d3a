# SPDX-License-Identifier: Apache-2.0
"""The routes of OpenAI's HTTP API, as far as they are served, and what a request to them may ask.

    GET  /healthz               is it alive
    GET  /openapi.json          this, for machines
    GET  /metrics               how it fares
    GET  /v1/models[/ID]        the one model
    POST /v1/completions        prompts → texts
    POST /v1/chat/completions   messages → messages

Source: https://platform.openai.com/docs/api-reference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from quickthaw.handler.errors import (
    FieldError,
    MethodNotAllowedError,
    ModelNotFoundError,
    RouteNotFoundError,
    UnsupportedFieldError,
)
from quickthaw.handler.fields import Fields, described
from quickthaw.handler.http.shapes import ChatShape, CompletionShape, Json
from quickthaw.handler.questions import read_messages, read_prompts
from quickthaw.handler.request import Defaults, Request, read
from quickthaw.handler.session import Session

_TEMPERATURE = 1.0  # OpenAI's default, and their limits
_CHOICES_LIMIT = 128
_COMPLETION_LOGPROBS_LIMIT = 5
_CHAT_LOGPROBS_LIMIT = 20
_MODELS = "/v1/models"
METRICS = "/metrics"

Reader = Callable[[Mapping[str, Any], Session], tuple[Request, CompletionShape]]
Document = Callable[[Session, str], Json]


def read_completion(body: Mapping[str, Any], session: Session) -> tuple[Request, CompletionShape]:
    """Raises: FieldError, ModelNotFoundError."""
    fields = Fields(body)
    _check_model(fields, session)
    prompts = read_prompts(fields)
    if prompts is None:
        raise FieldError("prompt", "a string or a list of token ids, or a list of these", "nothing")
    is_echoed = fields.boolean("echo")
    n_choices = _n_choices(fields)
    n_top_logprobs = fields.integer("logprobs", 0, _COMPLETION_LOGPROBS_LIMIT)
    # With an echo, no token at all is a way to ask how likely the prompt is.
    request = read(fields, _defaults(session), fewest_tokens=0 if is_echoed else 1)
    generation = request.generation._replace(
        prompts=prompts, n_choices=n_choices, is_echoed=is_echoed, n_top_logprobs=n_top_logprobs
    )
    return _shaped(CompletionShape, request._replace(generation=generation), session)


def read_chat(body: Mapping[str, Any], session: Session) -> tuple[Request, CompletionShape]:
    """Raises: FieldError, ModelNotFoundError."""
    fields = Fields(body)
    _check_model(fields, session)
    messages = read_messages(fields)
    if messages is None:
        raise FieldError("messages", "a list of at least one object", "nothing")
    n_choices, n_top_logprobs = _n_choices(fields), _chat_logprobs(fields)
    max_tokens_field, other = "max_tokens", "max_completion_tokens"
    if fields.has(other):  # the newer name
        max_tokens_field, other = other, max_tokens_field
    if fields.take(other) is not None:
        raise FieldError("max_tokens", "either max_tokens or max_completion_tokens", "both")
    request = read(fields, _defaults(session), max_tokens_field=max_tokens_field)
    generation = request.generation._replace(
        messages=messages, n_choices=n_choices, n_top_logprobs=n_top_logprobs
    )
    return _shaped(ChatShape, request._replace(generation=generation), session)


def _shaped(
    kind: type[CompletionShape], request: Request, session: Session
) -> tuple[Request, CompletionShape]:
    includes_logprobs = request.generation.n_top_logprobs is not None
    shape = kind(
        session.model_name,
        session.token_names,
        includes_usage=request.includes_usage,
        includes_logprobs=includes_logprobs,
    )
    return request, shape


def _n_choices(fields: Fields) -> int:
    n_choices = fields.integer("n", 1, _CHOICES_LIMIT) or 1
    best_of = fields.integer("best_of", 1)
    if best_of not in (None, n_choices):
        raise UnsupportedFieldError("best_of", f"{n_choices}, as many as n (not supported)", str(best_of))
    return n_choices


def _chat_logprobs(fields: Fields) -> int | None:
    is_wanted = fields.boolean("logprobs")
    n_top = fields.integer("top_logprobs", 0, _CHAT_LOGPROBS_LIMIT)
    if n_top and not is_wanted:
        raise FieldError("top_logprobs", "logprobs to be true", str(n_top))
    return (n_top or 0) if is_wanted else None


def _defaults(session: Session) -> Defaults:
    return Defaults(session.config.max_tokens, _TEMPERATURE)


def _health(session: Session, _path: str) -> Json:
    return {"status": "ok", "model": session.model_name, "engine": session.engine_name}


def _openapi(session: Session, _path: str) -> Json:
    from quickthaw.handler.http.openapi import document  # only who asks for it waits for it

    return document(session)


def _models(session: Session, _path: str) -> Json:
    return {"object": "list", "data": [_described_model(session)]}


def _model(session: Session, path: str) -> Json:
    """Raises: ModelNotFoundError."""
    name = path.removeprefix(_MODELS + "/")
    # Some events have the path as it was sent, some decoded.
    _check_name(name if name == session.model_name else _decoded(name), session)
    return _described_model(session)


def _described_model(session: Session) -> Json:
    return {"id": session.model_name, "object": "model", "created": 0, "owned_by": "quickthaw"}


class Route(NamedTuple):
    """What answers a path: a document to read, or a reader of what is posted; METRICS are the function's."""

    path: str
    document: Document | None = None
    reader: Reader | None = None

    @property
    def methods(self) -> tuple[str, ...]:
        """Those that it answers; OPTIONS is answered everywhere."""
        return ("POST",) if self.reader else ("GET", "HEAD")

    @property
    def is_guarded(self) -> bool:
        """Whether it wants a key, where there are any."""
        return self.path.startswith("/v1/") or self.path == METRICS

    def check_method(self, method: str) -> None:
        """Raises: MethodNotAllowedError."""
        if method not in self.methods:
            raise MethodNotAllowedError(self.path, self.methods, method)


ROUTES: Mapping[str, Route] = {
    route.path: route
    for route in (
        Route("/healthz", document=_health),
        Route("/openapi.json", document=_openapi),
        Route(METRICS),
        Route(_MODELS, document=_models),
        Route("/v1/completions", reader=read_completion),
        Route("/v1/chat/completions", reader=read_chat),
    )
}


def route(path: str) -> Route:
    """What answers `path`. Raises: RouteNotFoundError."""
    if path.startswith(_MODELS + "/"):
        return Route(path, document=_model)
    if path not in ROUTES:
        raise RouteNotFoundError(f"no route {path}: there are {', '.join(ROUTES)}")
    return ROUTES[path]


def _check_model(fields: Fields, session: Session) -> None:
    name = fields.text("model")
    if name is not None:
        _check_name(name, session)


def _check_name(name: str, session: Session) -> None:
    if name != session.model_name:
        raise ModelNotFoundError(f"model: expected {session.model_name!r}, found {described(name)}")


def _decoded(name: str) -> str:
    from urllib.parse import unquote  # 2 ms, which nothing else is worth

    return unquote(name)
