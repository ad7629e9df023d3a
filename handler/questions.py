# SPDX-License-Identifier: Apache-2.0
"""Reads what is asked: `prompt`, as text or token ids, one or several; or `messages`."""

from __future__ import annotations

from quickthaw.handler.errors import FieldError, UnsupportedFieldError
from quickthaw.handler.fields import Fields, described

Prompt = str | list[int]

_PROMPTS_LIMIT = 128
_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
_OTHER_ROLES = ("tool", "function")
_OTHER_PARTS = ("image_url", "input_audio", "file", "refusal")


def read_prompt(fields: Fields) -> Prompt | None:
    """`prompt`: text, or a list of token ids. Raises: FieldError."""
    value = fields.take("prompt")
    return None if value is None else _prompt(fields, "prompt", value)


def read_prompts(fields: Fields) -> list[Prompt] | None:
    """`prompt`, of which there may also be a list. Raises: FieldError."""
    value = fields.take("prompt")
    if value is None:
        return None
    if not isinstance(value, list) or not value or not isinstance(value[0], str | list):
        return [_prompt(fields, "prompt", value)]
    if len(value) > _PROMPTS_LIMIT:
        raise FieldError("prompt", f"at most {_PROMPTS_LIMIT} prompts", str(len(value)))
    return [_prompt(fields, f"prompt[{index}]", each) for index, each in enumerate(value)]


def _prompt(fields: Fields, name: str, value: object) -> Prompt:
    if isinstance(value, str):
        return fields.check_text(name, value)
    if not isinstance(value, list):
        raise FieldError(name, "a string or a list of token ids", described(value))
    for index, token_id in enumerate(value):
        if type(token_id) is not int:
            raise FieldError(f"{name}[{index}]", "a token id", described(token_id))
    return value


def read_messages(fields: Fields) -> list[dict[str, str]] | None:
    """`messages`: who said what; content may be text or a list of text parts. Raises: FieldError."""
    messages = fields.objects("messages")
    return None if messages is None else [_message(message) for message in messages]


def _message(fields: Fields) -> dict[str, str]:
    role = fields.text("role")
    if role not in _ROLES:
        kind = UnsupportedFieldError if role in _OTHER_ROLES else FieldError
        raise kind(fields.path("role"), " or ".join(_ROLES), described(role))
    fields.refuse("tool_calls", "function_call", "audio")  # before the content that they may stand for
    parts = fields.objects("content") if fields.has_list("content") else None
    content = fields.text("content") if parts is None else "".join(map(_text_part, parts))
    if content is None:
        raise FieldError(fields.path("content"), "a string or a list of text parts", "null")
    fields.close()
    return {"role": _ROLES[role], "content": content}


def _text_part(fields: Fields) -> str:
    kind, text = fields.take("type"), fields.text("text")
    if kind in _OTHER_PARTS:
        raise UnsupportedFieldError(fields.path("type"), '"text" (not supported)', described(kind))
    if kind != "text" or text is None:
        raise FieldError(fields.path("type"), '"text" with a field text', described(kind))
    fields.close()
    return text
