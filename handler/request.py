# SPDX-License-Identifier: Apache-2.0
"""Reads what every kind of request has in common: the prompt or the messages, how to sample, when to stop."""

from __future__ import annotations

from typing import NamedTuple

from quickthaw.handler.errors import FieldError
from quickthaw.handler.fields import Fields, described
from quickthaw.handler.session import Generation

_ROLES = ("system", "user", "assistant")
_STOPS_LIMIT = 4  # OpenAI's
_SEED_LIMIT = 1 << 63


class Request(NamedTuple):
    """A checked request."""

    generation: Generation
    is_streamed: bool
    includes_usage: bool = False  # of a stream: whether its last chunk counts tokens


class Defaults(NamedTuple):
    """What a request that does not say gets."""

    max_tokens: int
    temperature: float


def read(fields: Fields, defaults: Defaults, *, max_tokens_field: str = "max_tokens") -> Request:
    """Every field that is not a prompt; refuses what is then left.

    Raises: FieldError, one of its kinds.
    """
    temperature = fields.number("temperature", 2, is_zero_allowed=True)
    generation = Generation(
        max_tokens=fields.integer(max_tokens_field, 1) or defaults.max_tokens,
        temperature=defaults.temperature if temperature is None else temperature,
        top_k=fields.integer("top_k", 1),
        top_p=fields.number("top_p", 1, is_zero_allowed=False),
        seed=fields.integer("seed", -_SEED_LIMIT, _SEED_LIMIT - 1),
        stop=_stop(fields),
    )
    request = Request(generation, fields.boolean("stream"), _includes_usage(fields))
    fields.close()
    return request


def read_prompt(fields: Fields) -> str | list[int] | None:
    """`prompt`: text, or a list of token ids."""
    value = fields.take("prompt")
    if value is None:
        return None
    if isinstance(value, str):
        return fields.check_text("prompt", value)
    if not isinstance(value, list):
        raise FieldError("prompt", "a string or a list of token ids", described(value))
    for index, token_id in enumerate(value):
        if type(token_id) is not int:
            raise FieldError(f"prompt[{index}]", "a token id", described(token_id))
    return value


def read_messages(fields: Fields) -> list[dict[str, str]] | None:
    """`messages`: who said what; content may be text or a list of text parts."""
    messages = fields.objects("messages")
    return None if messages is None else [_message(message) for message in messages]


def _message(fields: Fields) -> dict[str, str]:
    role = fields.text("role")
    if role not in _ROLES:
        raise FieldError(fields.path("role"), " or ".join(_ROLES), described(role))
    parts = fields.objects("content") if fields.has_list("content") else None
    content = fields.text("content") if parts is None else "".join(map(_text_part, parts))
    if content is None:
        raise FieldError(fields.path("content"), "a string or a list of text parts", "null")
    fields.close()
    return {"role": role, "content": content}


def _text_part(fields: Fields) -> str:
    kind, text = fields.take("type"), fields.text("text")
    if kind != "text" or text is None:
        raise FieldError(fields.path("type"), '"text" with a field text', described(kind))
    fields.close()
    return text


def _stop(fields: Fields) -> tuple[str, ...]:
    value = fields.take("stop")
    stops = [] if value is None else [value] if isinstance(value, str) else value
    if not isinstance(stops, list) or len(stops) > _STOPS_LIMIT:
        raise FieldError("stop", f"a string or a list of at most {_STOPS_LIMIT}", described(value))
    for index, stop in enumerate(stops):
        name = "stop" if isinstance(value, str) else f"stop[{index}]"
        if not isinstance(stop, str) or not stop:
            raise FieldError(name, "a string that is not empty", described(stop))
        fields.check_text(name, stop)
    return tuple(stops)


def _includes_usage(fields: Fields) -> bool:
    options = fields.child("stream_options")
    if options is None:
        return False
    includes_usage = options.boolean("include_usage")
    options.close()
    return includes_usage
