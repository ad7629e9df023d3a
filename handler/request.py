# SPDX-License-Identifier: Apache-2.0
"""Reads what every kind of request has in common: how to sample, when to stop, whether to stream."""

from __future__ import annotations

from typing import NamedTuple

from quickthaw.handler.errors import FieldError
from quickthaw.handler.fields import Fields, described
from quickthaw.handler.generation import Generation
from quickthaw.layers.sampler import Sampling

_STOPS_LIMIT = 4  # OpenAI's
_SEED_LIMIT = 1 << 63
_PRIORITY_LIMIT = 1 << 31  # the name and the sense are vLLM's
_PENALTY_LIMIT = 2.0  # OpenAI's, as the next
_BIAS_LIMIT = 100.0
_REPETITION_LIMIT = 10.0
_ID_DIGITS = 9  # more than any vocabulary has


class Request(NamedTuple):
    """A checked request."""

    generation: Generation
    is_streamed: bool
    includes_usage: bool = False  # of a stream: whether its last chunk counts tokens


class Defaults(NamedTuple):
    """What a request that does not say gets."""

    max_tokens: int
    temperature: float


def read(
    fields: Fields, defaults: Defaults, *, max_tokens_field: str = "max_tokens", fewest_tokens: int = 1
) -> Request:
    """Every field that is in all kinds of request; refuses what is then left.

    Raises: FieldError, one of its kinds.
    """
    max_tokens = fields.integer(max_tokens_field, fewest_tokens)
    generation = Generation(
        max_tokens=defaults.max_tokens if max_tokens is None else max_tokens,
        sampling=_sampling(fields, defaults.temperature),
        stop=_stop(fields),
        priority=fields.integer("priority", -_PRIORITY_LIMIT, _PRIORITY_LIMIT) or 0,
    )
    request = Request(generation, fields.boolean("stream"), _includes_usage(fields))
    fields.close()
    return request


def _sampling(fields: Fields, temperature: float) -> Sampling:
    def number(name: str, low: float, high: float, default: float) -> float:
        value = fields.number(name, low, high)
        return default if value is None else value

    return Sampling(
        temperature=number("temperature", 0, 2, temperature),
        top_k=fields.integer("top_k", 1),
        top_p=fields.number("top_p", 0, 1, is_low_allowed=False),
        min_p=fields.number("min_p", 0, 1),
        repetition_penalty=fields.number("repetition_penalty", 0, _REPETITION_LIMIT, is_low_allowed=False)
        or 1.0,
        presence_penalty=number("presence_penalty", -_PENALTY_LIMIT, _PENALTY_LIMIT, 0.0),
        frequency_penalty=number("frequency_penalty", -_PENALTY_LIMIT, _PENALTY_LIMIT, 0.0),
        logit_bias=_logit_bias(fields),
        seed=fields.integer("seed", -_SEED_LIMIT, _SEED_LIMIT - 1),
    )


def _logit_bias(fields: Fields) -> tuple[tuple[int, float], ...]:
    """`logit_bias`: token ids, which are strings as names in JSON, and what is added to their logits."""
    biases = fields.child("logit_bias")
    if biases is None:
        return ()
    found = []
    for name in biases.names():
        if not (name.isascii() and name.isdigit() and len(name) <= _ID_DIGITS and name == str(int(name))):
            raise FieldError("logit_bias", "token ids as names", described(name))
        bias = biases.number(name, -_BIAS_LIMIT, _BIAS_LIMIT)
        found.append((int(name), bias or 0.0))
    return tuple(found)


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
