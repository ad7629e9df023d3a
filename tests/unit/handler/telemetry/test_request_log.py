# SPDX-License-Identifier: Apache-2.0
"""What requests leave in the log and at /metrics, from the event to the line."""

import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from quickthaw.handler.function import Function
from quickthaw.handler.timeline import Timeline
from quickthaw.layers.errors import ShardMissingError
from quickthaw.snapshot import afterwards, streaming
from tests.unit.handler.fakes import session
from tests.unit.handler.telemetry import test_embedded, test_trace_context
from tests.unit.handler.test_events import http_event
from tests.unit.handler.test_function import Context

Lines = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def lines(capsys: pytest.CaptureFixture[str]) -> Lines:
    """What was printed since this was last asked."""
    return lambda: [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def function(script: str | Iterable[int | Exception] = "hi", **environ: str) -> Function:
    return Function(session(script, environ=environ)[0], Timeline())


@pytest.fixture
def _bootstrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "_is_available", True)
    monkeypatch.setattr(afterwards, "_is_enabled", True)
    monkeypatch.setattr(afterwards, "_tasks", [])


def test_a_line_says_who_asked_what_and_how_it_ended(lines: Lines) -> None:
    function().answer(http_event('{"prompt": "?"}'), Context())
    line, start = lines()
    assert start["quickthaw"] == "start"
    expected = {
        "quickthaw": "request",
        "function": "quickthaw",
        "start": "cold",
        "model": "bytes",
        "engine": "scripted",
        "request_id": Context().aws_request_id,
        "trace_id": None,
        "route": "POST /v1/completions",
        "status": 200,
        "is_streamed": False,
        "finish_reason": "stop",
        "prompt_tokens": 1,
        "completion_tokens": 3,
        "read_bytes": 2,
    }
    assert {name: line[name] for name in expected} == expected
    assert "prompt" not in line
    assert line["first_compute_ms"] <= line["first_token_ms"] <= line["last_token_ms"] <= line["bytes_out_ms"]
    assert line["inter_token_p50_ms"] <= line["inter_token_p99_ms"]


def test_a_prompt_is_quoted_where_that_was_asked_for(lines: Lines) -> None:
    asked = function(QUICKTHAW_LOG_PROMPTS="on")
    asked.answer({"prompt": "what?"}, Context())
    asked.answer({"messages": [{"role": "user", "content": "who?"}]}, Context())
    asked.answer({"prompt": 7}, Context())
    first, _, second, refused = lines()
    assert first["prompt"] == ["what?"]
    assert second["prompt"] == [{"role": "user", "content": "who?"}]
    assert "prompt" not in refused


def test_up_to_the_first_answer_a_start_is_cold(lines: Lines) -> None:
    asked = function()
    asked.answer(http_event(method="GET", path="/healthz"), Context())
    for _ in range(2):
        asked.answer({"prompt": "?"}, Context())
    ping, first, start, second = lines()
    assert [line["start"] for line in (ping, first, second)] == ["cold", "cold", "warm"]
    assert (ping["route"], ping["read_bytes"], first["read_bytes"]) == ("GET /healthz", 2, 0)
    assert "kv_bytes" not in ping
    assert [phase["name"] for phase in start["phases"]].count("event") == 1


@pytest.mark.parametrize(
    ("environ", "names"),
    [
        ({"QUICKTHAW_LOG": "off"}, ["start"]),
        ({"QUICKTHAW_METRICS": "off"}, ["request", "start"]),
        ({"QUICKTHAW_LOG": "off", "QUICKTHAW_METRICS": "emf"}, ["request", "start"]),
    ],
)
def test_what_is_off_is_not_written(lines: Lines, environ: dict[str, str], names: list[str]) -> None:
    function(**environ).answer({"prompt": "?"}, Context())
    assert [line["quickthaw"] for line in lines()] == names


def test_metrics_alone_are_a_line_without_the_rest(lines: Lines) -> None:
    asked = function(QUICKTHAW_LOG="off", QUICKTHAW_METRICS="emf", QUICKTHAW_METRICS_NAMESPACE="team/a")
    asked.answer({"prompt": "?"}, Context())
    line = lines()[0]
    told = test_embedded.check(line)
    assert {"requests", "first_token_ms", "inter_token_ms"} <= set(told)
    assert set(line) == {"quickthaw", "function", "start", "_aws", *told}


@pytest.mark.usefixtures("_bootstrapped")
def test_a_stream_that_fails_has_said_200(lines: Lines) -> None:
    asked = function([104, ShardMissingError("gone", where="layer-001")])
    stream = asked.answer({"prompt": "?", "stream": True}, Context())
    with pytest.raises(ShardMissingError):
        list(stream)
    assert lines() == []
    afterwards.run_deferred()
    line = lines()[0]
    assert (line["status"], line["is_streamed"], line["finish_reason"]) == (200, True, None)
    assert (line["error"]["code"], line["error"]["class"]) == ("model_unavailable", "ShardMissingError")
    assert (line["completion_tokens"], "last_token_ms" in line) == (1, True)


@pytest.mark.usefixtures("_bootstrapped")
def test_a_client_that_has_gone(lines: Lines) -> None:
    stream = function("hello").answer({"prompt": "?", "stream": True}, Context())
    next(iter(stream))
    stream.close()
    afterwards.run_deferred()
    line = lines()[0]
    assert (line["finish_reason"], line["completion_tokens"]) == ("client_gone", 1)


def test_traces(lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_X_AMZN_TRACE_ID", test_trace_context.XRAY)
    w3c = test_trace_context.W3C.replace("5", "6")
    asked = function()
    asked.answer({"prompt": "?"}, Context())
    asked.answer(http_event('{"prompt": "?"}', headers={"Traceparent": w3c}), Context())
    first, _, second = lines()
    assert first["trace_id"] == second["xray_trace_id"].removeprefix("1-").replace("-", "")
    assert second["trace_id"] == w3c.split("-")[1]


def test_metrics_want_a_key_where_there_are_any() -> None:
    event = http_event(method="GET", path="/metrics")
    asked = function(QUICKTHAW_API_KEYS="k")
    assert asked.answer(event, Context())["statusCode"] == 401
    response = asked.answer({**event, "headers": {"authorization": "Bearer k"}}, Context())
    assert response["statusCode"] == 200
    assert 'quickthaw_refused_requests_total{start="cold"} 1' in response["body"].splitlines()


def test_metrics_that_are_off_are_nowhere() -> None:
    event = http_event(method="GET", path="/metrics")
    assert function(QUICKTHAW_METRICS="off").answer(event, Context())["statusCode"] == 404
