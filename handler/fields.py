# SPDX-License-Identifier: Apache-2.0
"""Reads a request's fields one by one: each has a type and a range, null means absent, none is left over."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from quickthaw.handler.errors import FieldError, UnknownFieldError, UnsupportedFieldError

_QUOTED_CHARACTERS = 40
ANY = object()

# What clients of OpenAI's API send without meaning anything by it: option → the values that change nothing.
# Any other value would have to change the answer, and is refused.
NEUTRAL: Mapping[str, Collection[object]] = {
    "annotations": ([],),
    "audio": (),
    "best_of": (1,),
    "echo": (False,),
    "function_call": ("none",),
    "functions": ([],),
    "logprobs": (False,),
    "metadata": (ANY,),
    "modalities": (["text"],),
    "n": (1,),
    "name": (),
    "parallel_tool_calls": (ANY,),
    "prediction": (),
    "prompt_cache_key": (ANY,),
    "reasoning_effort": (),
    "refusal": (),
    "response_format": ({"type": "text"},),
    "safety_identifier": (ANY,),
    "service_tier": ("auto", "default"),
    "store": (False,),
    "suffix": ("",),
    "tool_choice": ("none", "auto"),
    "tool_calls": ([],),
    "tools": ([],),
    "top_logprobs": (0,),
    "user": (ANY,),
    "verbosity": (),
    "web_search_options": (),
}


class Fields:
    """The fields of one JSON object; `close` refuses what nobody has read."""

    def __init__(self, document: Mapping[str, Any], path: str = "") -> None:
        self._left = dict(document)
        self._read: list[str] = []  # the names that were asked for
        self._path = path  # where the object lies in the request: "messages[0]."

    def take(self, name: str) -> Any:
        """The raw value; None when absent."""
        self._read.append(name)
        return self._left.pop(name, None)

    def integer(self, name: str, low: int, high: int | None = None) -> int | None:
        """A JSON integer: 7, but not 7.0, "7" or true."""
        value = self.take(name)
        if value is None:
            return None
        if type(value) is int and value >= low and (high is None or value <= high):
            return value
        limits = f"of at least {low}" if high is None else f"from {low} to {high}"
        raise self._error(name, f"an integer {limits}", value)

    def number(self, name: str, low: float, high: float, *, is_low_allowed: bool = True) -> float | None:
        """A JSON number from `low` to `high`."""
        value = self.take(name)
        if value is None:
            return None
        is_good = type(value) in (int, float) and low <= value <= high  # false for NaN
        if is_good and (value > low or is_low_allowed):
            return float(value)
        limits = f"{'from' if is_low_allowed else 'above'} {low:g} to {high:g}"
        raise self._error(name, f"a number {limits}", value)

    def boolean(self, name: str) -> bool:
        """true or false; false when absent."""
        value = self.take(name)
        if value is not None and not isinstance(value, bool):
            raise self._error(name, "a boolean", value)
        return bool(value)

    def text(self, name: str) -> str | None:
        """A string of Unicode text."""
        value = self.take(name)
        if value is None:
            return None
        if not isinstance(value, str):
            raise self._error(name, "a string", value)
        return self.check_text(name, value)

    def check_text(self, name: str, value: str) -> str:
        """`value`, which has no lone surrogate (JSON can spell one, UTF-8 cannot)."""
        try:
            value.encode()
        except UnicodeEncodeError as exc:
            found = f"a lone surrogate, \\u{ord(value[exc.start]):04x}, at character {exc.start}"
            raise FieldError(self.path(name), "Unicode text", found) from exc
        return value

    def child(self, name: str) -> Fields | None:
        """An object's own fields."""
        value = self.take(name)
        return None if value is None else self._child(name, value)

    def objects(self, name: str) -> list[Fields] | None:
        """The fields of each object in a list of at least one."""
        value = self.take(name)
        if value is None:
            return None
        if not isinstance(value, list) or not value:
            raise self._error(name, "a list of at least one object", value)
        return [self._child(f"{name}[{index}]", item) for index, item in enumerate(value)]

    def names(self) -> list[str]:
        """The names of the fields that nobody has read."""
        return list(self._left)

    def has(self, name: str) -> bool:
        """Whether there is a value, null aside."""
        return self._left.get(name) is not None

    def has_list(self, name: str) -> bool:
        """Whether the value is a list."""
        return isinstance(self._left.get(name), list)

    def path(self, name: str) -> str:
        """The field's name with where it lies in the request."""
        return self._path + name

    def refuse(self, *names: str) -> None:
        """Refuse these options that clients know, unless they are at a value that changes nothing."""
        for name in names:
            value = self._left.get(name)
            if value is not None and not any(_is_same(value, neutral) for neutral in NEUTRAL[name]):
                neutral = " or ".join([json.dumps(v) for v in NEUTRAL[name]] or ["null"])
                raise UnsupportedFieldError(self.path(name), f"{neutral} (not supported)", described(value))

    def close(self) -> None:
        """Refuse what is left, unless it is such an option at such a value."""
        for name, value in self._left.items():
            if name not in NEUTRAL:
                raise UnknownFieldError(self.path(name), ", ".join(self._read), described(value))
        self.refuse(*self._left)

    def _child(self, name: str, value: object) -> Fields:
        if not isinstance(value, dict):
            raise self._error(name, "an object", value)
        return Fields(value, f"{self.path(name)}.")

    def _error(self, name: str, expected: str, found: object) -> FieldError:
        return FieldError(self.path(name), expected, described(found))


def _is_same(value: object, neutral: object) -> bool:
    """Equal as JSON, where true is not 1."""
    return neutral is ANY or (isinstance(value, bool) == isinstance(neutral, bool) and value == neutral)


def described(value: object) -> str:
    """A value for an error message, however large it is."""
    match value:
        case None:
            return "null"
        case bool():
            return f"{json.dumps(value)} (a boolean)"
        case int() | float():
            return f"{_short(json.dumps(value))} (a number)"
        case str():
            return f"{_short(json.dumps(value[: _QUOTED_CHARACTERS + 1]))} (a string)"
        case list():
            return f"a list of {len(value)}"
        case _:
            return "an object"


def _short(text: str) -> str:
    return text if len(text) <= _QUOTED_CHARACTERS else f"{text[:_QUOTED_CHARACTERS]}…"
