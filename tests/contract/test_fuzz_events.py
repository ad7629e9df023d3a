# SPDX-License-Identifier: Apache-2.0
"""Anything at all as an event: the answer is never a server's error, a stack trace or an exception."""

import copy
import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from quickthaw.handler.function import Function
from quickthaw.handler.timeline import Timeline
from tests.unit.handler.fakes import session
from tests.unit.handler.test_function import Context

EVENTS = [
    json.loads(path.read_text()) for path in sorted((Path(__file__).parents[1] / "events").glob("*.json"))
]
PATHS = [
    "/",
    "/healthz",
    "/metrics",
    "/v1/models",
    "/v1/models/bytes",
    "/v1/completions",
    "/v1/chat/completions",
]
FIELDS = [
    "prompt",
    "messages",
    "role",
    "content",
    "max_tokens",
    "n",
    "stop",
    "stream",
    "logprobs",
    "logit_bias",
    "model",
]
SECRET = "hunter2"

json_value = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["user", "text"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.text(max_size=8) | st.sampled_from(FIELDS), inner, max_size=3),
    max_leaves=8,
)
body = st.one_of(
    st.dictionaries(st.sampled_from(FIELDS), json_value, max_size=5).map(json.dumps),
    st.text(max_size=20),
    st.binary(max_size=20).map(lambda data: b64encode(data).decode()),
    json_value,
)
methods = st.sampled_from(["GET", "POST", SECRET, f"{SECRET} /"])
bounded = settings(
    max_examples=200,
    deadline=20_000,  # ms: an answer that takes longer hangs, also on a busy machine
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@st.composite
def damaged_event(draw: st.DrawFn) -> dict[str, Any]:
    """A sender's event, with a path and a body of its own and a few values replaced, anywhere in it."""
    event: dict[str, Any] = copy.deepcopy(draw(st.sampled_from(EVENTS)))
    path = draw(st.sampled_from(PATHS))
    event |= {"path" if "httpMethod" in event else "rawPath": path, "body": draw(body)}
    event["isBase64Encoded"] = draw(st.booleans())
    for _ in range(draw(st.integers(0, 3))):
        inside: Any = event
        while True:
            key = draw(st.sampled_from(sorted(inside)))
            if not isinstance(inside[key], dict) or not inside[key] or draw(st.booleans()):
                break
            inside = inside[key]
        inside[key] = draw(json_value)
    return event


def ask(event: object) -> str:
    """The answer as Lambda would send it."""
    answer = Function(session("hi" * 5)[0], Timeline()).answer(event, Context())
    text = json.dumps(answer)
    assert "Traceback" not in text
    assert ".py" not in text
    if isinstance(answer, dict) and "statusCode" in answer:
        assert 200 <= answer["statusCode"] < 500, answer
    elif "error" in answer:
        assert answer["error"]["type"] == "invalid_request_error", answer
    return text


@bounded
@given(json_value)
@example({"requestContext": {"http": {}}})
@example({"requestContext": {}, "httpMethod": "GET"})
def test_any_json(event: object) -> None:
    ask(event)


@bounded
@given(st.dictionaries(st.sampled_from(FIELDS), json_value, max_size=6))
def test_any_fields(event: dict[str, Any]) -> None:
    ask(event)


@bounded
@given(damaged_event())
def test_any_damage_to_a_senders_event(event: dict[str, Any]) -> None:
    ask(event)


@bounded
@given(
    st.dictionaries(st.sampled_from([*FIELDS, SECRET]), json_value, max_size=4),
    st.sampled_from(PATHS),
    st.data(),
)
def test_the_log_quotes_nothing(
    capsys: pytest.CaptureFixture[str], fields: dict[str, Any], path: str, data: st.DataObject
) -> None:
    capsys.readouterr()
    asked = {
        **fields,
        data.draw(st.sampled_from(FIELDS)): data.draw(st.sampled_from([SECRET, [SECRET], {SECRET: 1}])),
    }
    http = {
        "version": "2.0",
        "rawPath": f"{path}/{SECRET}",
        "headers": {"traceparent": SECRET},
        "body": json.dumps(asked),
    }
    ask(asked)
    ask({**http, "requestContext": {"http": {"method": "POST"}}})
    ask({**http, "rawPath": path, "requestContext": {"http": {"method": data.draw(methods)}}})
    captured = capsys.readouterr()
    assert captured.out.count('"quickthaw":"request"') == 3
    assert SECRET not in captured.out + captured.err
