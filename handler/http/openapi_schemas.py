# SPDX-License-Identifier: Apache-2.0
"""The objects of the HTTP API as JSON Schema: what may be asked, in full, and what is answered.

What may be absent may be null. Objects that are sent are closed, since a field that nobody reads is refused;
those that are answered are open, since more may come.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from quickthaw.handler.fields import ANY, NEUTRAL

Schema = dict[str, Any]

_STRING: Schema = {"type": "string"}
_TEXT: Schema = {"type": "string", "minLength": 1}
_BOOLEAN: Schema = {"type": "boolean"}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_SEED_LIMIT = 1 << 63
_PRIORITY_LIMIT = 1 << 31


def schemas(model_name: str, vocab_size: int, context_tokens: int) -> dict[str, Schema]:
    """Everything that the description refers to, for this model."""
    common = _common(model_name, vocab_size)
    return {
        "CompletionRequest": _completion_request(common, vocab_size, context_tokens),
        "ChatRequest": _chat_request(common),
        "Message": _MESSAGE,
        "Completion": _answer("text_completion", "text", _STRING),
        "ChatCompletion": _answer("chat.completion", "message", _open(role=_STRING, content=_STRING)),
        "Usage": _open(
            prompt_tokens=_COUNT,
            completion_tokens=_COUNT,
            total_tokens=_COUNT,
            prompt_tokens_details=_open(cached_tokens=_COUNT),
        ),
        "Model": _open(id=_STRING, object={"const": "model"}, created=_COUNT, owned_by=_STRING),
        "ModelList": _open(object={"const": "list"}, data=_list(reference("Model"))),
        "Health": _open(status={"const": "ok"}, model=_STRING, engine=_STRING),
        "Error": _open(
            error=_open(message=_STRING, type=_STRING, param=_nullable(_STRING), code=_nullable(_STRING))
        ),
    }


def reference(name: str) -> Schema:
    """A schema by its name."""
    return {"$ref": f"#/components/schemas/{name}"}


# --- asked ---


def _common(model_name: str, vocab_size: int) -> dict[str, Schema]:
    """The fields of both kinds of request."""
    bias = {"type": "object", "patternProperties": {_token_pattern(vocab_size): _number(-100, 100)}}
    return {
        "model": _nullable({"const": model_name}),
        "n": _nullable(_integer(1, 128)),
        "max_tokens": _nullable(_integer(1)),
        "temperature": _nullable(_number(0, 2)),
        "top_k": _nullable(_integer(1)),
        "top_p": _nullable({"type": "number", "exclusiveMinimum": 0, "maximum": 1}),
        "min_p": _nullable(_number(0, 1)),
        "repetition_penalty": _nullable({"type": "number", "exclusiveMinimum": 0, "maximum": 10}),
        "presence_penalty": _nullable(_number(-2, 2)),
        "frequency_penalty": _nullable(_number(-2, 2)),
        "logit_bias": _nullable({**bias, "additionalProperties": False}),
        "seed": _nullable(_integer(-_SEED_LIMIT, _SEED_LIMIT - 1)),
        "priority": _nullable(_integer(-_PRIORITY_LIMIT, _PRIORITY_LIMIT)),
        "stop": _nullable({"anyOf": [_TEXT, {"type": "array", "items": _TEXT, "maxItems": 4}]}),
        "stream": _nullable(_BOOLEAN),
        "stream_options": _nullable(_closed({"include_usage": _nullable(_BOOLEAN)})),
    }


def _completion_request(common: dict[str, Schema], vocab_size: int, context_tokens: int) -> Schema:
    ids = _list(_integer(0, vocab_size - 1), 1, context_tokens - 1)
    own = {
        "prompt": {"anyOf": [_TEXT, ids, _list({"anyOf": [_TEXT, ids]}, 1, 128)]},
        "echo": _nullable(_BOOLEAN),
        "logprobs": _nullable(_integer(0, 5)),
        "best_of": _nullable({**_integer(1, 128), "description": "As many as n."}),
    }
    return _closed({**_neutral(), **common, **own}, ["prompt"])


def _chat_request(common: dict[str, Schema]) -> Schema:
    own = {
        "messages": _list(reference("Message"), 1),
        "logprobs": _nullable(_BOOLEAN),
        "top_logprobs": _nullable({**_integer(0, 20), "description": "Above 0 only with logprobs."}),
        "max_completion_tokens": _nullable({**_integer(1), "description": "The newer name of max_tokens."}),
        "best_of": _nullable({**_integer(1, 128), "description": "As many as n."}),
    }
    return _closed({**_neutral(), **common, **own}, ["messages"])


def _neutral() -> dict[str, Schema]:
    """Options that are taken at the values that change nothing."""
    return {name: {} if ANY in values else {"enum": [*values, None]} for name, values in NEUTRAL.items()}


def _token_pattern(vocab_size: int) -> str:
    """A token id as the name of a field; one beyond the vocabulary may still match."""
    return f"^(0|[1-9][0-9]{{0,{max(len(str(vocab_size - 1)) - 2, 0)}}})$"


# --- answered ---


def _answer(name: str, content_name: str, content: Schema) -> Schema:
    reason = {"enum": ["stop", "length"]}
    choice = _open(index=_COUNT, logprobs={"type": ["object", "null"]}, finish_reason=reason)
    choice["properties"][content_name] = content
    choice["required"].append(content_name)
    return _open(
        id=_STRING,
        object={"const": name},
        created=_COUNT,
        model=_STRING,
        choices=_list(choice, 1),
        usage=reference("Usage"),
    )


# --- JSON Schema, said shortly ---


def _closed(properties: dict[str, Schema], required: Sequence[str] = ()) -> Schema:
    closed: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**closed, "required": list(required)} if required else closed


def _open(**properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _nullable(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _integer(low: int, high: int | None = None) -> Schema:
    schema: Schema = {"type": "integer", "minimum": low}
    return schema if high is None else {**schema, "maximum": high}


def _number(low: float, high: float) -> Schema:
    return {"type": "number", "minimum": low, "maximum": high}


def _list(items: Schema, fewest: int = 0, most: int | None = None) -> Schema:
    schema: Schema = {"type": "array", "items": items, "minItems": fewest}
    return schema if most is None else {**schema, "maxItems": most}


_PART = _closed({"type": {"const": "text"}, "text": _STRING}, ["type", "text"])
_MESSAGE = _closed(
    {
        **_neutral(),
        "role": {"enum": ["system", "developer", "user", "assistant"]},
        "content": {"anyOf": [_STRING, _list(_PART, 1)]},
    },
    ["role", "content"],
)
