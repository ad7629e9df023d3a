# SPDX-License-Identifier: Apache-2.0
import json
import math
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quickthaw.handler.errors import FieldError, RequestError, UnknownFieldError, UnsupportedFieldError
from quickthaw.handler.fields import Fields
from quickthaw.handler.questions import read_messages, read_prompt
from quickthaw.handler.request import Defaults, Request, read
from quickthaw.layers.sampler import Sampling

DEFAULTS = Defaults(max_tokens=256, temperature=0.5)


def request(**fields: Any) -> Request:
    return read(Fields(fields), DEFAULTS)


def test_what_is_absent_or_null_has_its_default() -> None:
    names = (
        "max_tokens",
        "temperature",
        "top_k",
        "top_p",
        "min_p",
        "repetition_penalty",
        "presence_penalty",
        "frequency_penalty",
        "logit_bias",
        "seed",
        "stop",
        "stream",
        "stream_options",
        "logprobs",
    )
    assert request() == request(**dict.fromkeys(names))
    assert request().generation.max_tokens == 256
    assert request().generation.sampling == Sampling(0.5)


def test_every_field_is_read() -> None:
    read_back = request(
        max_tokens=10**30, temperature=0, top_k=3, top_p=1, min_p=0, repetition_penalty=1.2,
        presence_penalty=-2, frequency_penalty=2, logit_bias={"5": -100, "0": 1.5}, seed=-5, stop="x",
        stream=True, stream_options={"include_usage": True},
    )  # fmt: skip
    generation = read_back.generation
    assert (generation.max_tokens, generation.stop) == (10**30, ("x",))
    assert generation.sampling == Sampling(0, 3, 1, 0, 1.2, -2, 2, ((5, -100), (0, 1.5)), -5)
    assert read_back.is_streamed
    assert read_back.includes_usage
    assert request(stop=["a", "b"]).generation.stop == ("a", "b")


@pytest.mark.parametrize(
    ("name", "value", "found"),
    [
        ("max_tokens", 0, "0 (a number)"),
        ("max_tokens", -1, "-1 (a number)"),
        ("max_tokens", "7", '"7" (a string)'),
        ("max_tokens", 1e9, "1000000000.0 (a number)"),
        ("max_tokens", True, "true (a boolean)"),
        ("max_tokens", math.nan, "NaN (a number)"),
        ("max_tokens", [1], "a list of 1"),
        ("temperature", math.nan, "NaN (a number)"),
        ("temperature", math.inf, "Infinity (a number)"),
        ("temperature", -0.1, "-0.1 (a number)"),
        ("temperature", 3, "3 (a number)"),
        ("temperature", 10**400, "1000000000000000000000000000000000000000… (a number)"),
        ("temperature", False, "false (a boolean)"),
        ("top_p", 0, "0 (a number)"),
        ("top_p", 1.1, "1.1 (a number)"),
        ("top_k", 0, "0 (a number)"),
        ("top_k", 1.0, "1.0 (a number)"),
        ("min_p", -0.1, "-0.1 (a number)"),
        ("min_p", 1.1, "1.1 (a number)"),
        ("repetition_penalty", 0, "0 (a number)"),
        ("repetition_penalty", 11, "11 (a number)"),
        ("presence_penalty", 2.1, "2.1 (a number)"),
        ("frequency_penalty", -2.1, "-2.1 (a number)"),
        ("logit_bias", [], "a list of 0"),
        ("logit_bias", {"x": 1}, '"x" (a string)'),
        ("logit_bias", {"01": 1}, '"01" (a string)'),
        ("logit_bias", {"9" * 5000: 1}, '"' + "9" * 39 + "… (a string)"),
        ("logit_bias", {"-1": 1}, '"-1" (a string)'),
        ("seed", 2**63, "9223372036854775808 (a number)"),
        ("seed", "x", '"x" (a string)'),
        ("stream", 1, "1 (a number)"),
        ("stream", "true", '"true" (a string)'),
        ("stream_options", [], "a list of 0"),
        ("stop", 1, "1 (a number)"),
        ("stop", "", '"" (a string)'),
        ("stop", ["a"] * 5, "a list of 5"),
        ("stop", {}, "an object"),
    ],
)  # fmt: skip
def test_a_bad_value_is_refused_by_name(name: str, value: object, found: str) -> None:
    with pytest.raises(FieldError) as error:
        request(**{name: value})
    assert (error.value.field, error.value.found) == (name, found)


@pytest.mark.parametrize(
    ("stop", "field"), [(["a", ""], "stop[1]"), ([1], "stop[0]"), (["\ud800"], "stop[0]"), ("\ud800", "stop")]
)
def test_a_bad_stop_string_is_refused_by_its_place(stop: object, field: str) -> None:
    with pytest.raises(FieldError) as error:
        request(stop=stop)
    assert error.value.field == field


NEUTRAL: list[dict[str, object]] = [
    {"n": 1},
    {"logprobs": False},
    {"tools": []},
    {"tools": None},
    {"suffix": None},
    {"user": "me"},
    {"name": None},
    {"response_format": {"type": "text"}},
]
UNSUPPORTED: list[dict[str, object]] = [
    {"n": 2},
    {"n": True},
    {"logprobs": 0},
    {"logprobs": True},
    {"tools": [{}]},
    {"response_format": {"type": "json_object"}},
    {"echo": True},
    {"suffix": "x"},
    {"reasoning_effort": "low"},
]


@pytest.mark.parametrize("fields", NEUTRAL)
def test_an_option_at_a_value_that_changes_nothing_is_taken(fields: dict[str, object]) -> None:
    request(**fields)


@pytest.mark.parametrize("fields", UNSUPPORTED)
def test_an_option_that_would_change_the_answer_is_refused_by_name(fields: dict[str, object]) -> None:
    with pytest.raises(UnsupportedFieldError) as error:
        request(**fields)
    assert error.value.field == next(iter(fields))


def test_a_bias_has_its_limits() -> None:
    with pytest.raises(FieldError, match=r"logit_bias\.7: expected a number from -100 to 100, found 101"):
        request(logit_bias={"7": 101})


def test_an_unknown_field_is_refused_by_name() -> None:
    with pytest.raises(UnknownFieldError, match=r"max_token: unknown field; fields are .*max_tokens, "):
        request(max_token=7)
    with pytest.raises(
        UnknownFieldError, match=r"stream_options\.x: unknown field; fields are include_usage$"
    ):
        request(stream_options={"x": 1})


json_value = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
NAMES = [
    "prompt",
    "messages",
    "max_tokens",
    "temperature",
    "top_p",
    "seed",
    "stop",
    "stream",
    "n",
    "tools",
    "x",
]


def refused_field(document: dict[str, object]) -> str | None:
    fields = Fields(json.loads(json.dumps(document)))
    try:
        read_prompt(fields)
        read_messages(fields)
        read(fields, DEFAULTS)
    except RequestError as error:
        return error.field or "no field named"
    return None


@given(st.dictionaries(st.sampled_from(NAMES), json_value, max_size=5))
def test_whatever_json_comes_is_read_or_refused_by_name(document: dict[str, object]) -> None:
    field = refused_field(document)
    assert field is None or re.split(r"[.\[]", field)[0] in document
