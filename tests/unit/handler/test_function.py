# SPDX-License-Identifier: Apache-2.0
import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quickthaw.handler.function import Function
from quickthaw.handler.timeline import Timeline
from quickthaw.layers.errors import ShardMissingError
from quickthaw.snapshot import streaming
from quickthaw.snapshot.streaming import StreamedResponse
from tests.unit.handler.fakes import EOS, NONE_CACHED, session
from tests.unit.handler.test_events import http_event


class Context:
    aws_request_id = "8476a536"

    def __init__(self, left_ms: int = 60_000) -> None:
        self.left_ms = left_ms

    def get_remaining_time_in_millis(self) -> int:
        return self.left_ms


@pytest.fixture
def can_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "_is_available", True)


def ask(event: object, script: Any = "hi", **options: Any) -> Any:
    return Function(session(script, **options)[0], Timeline()).answer(event, Context())


def ask_http(
    body: object, path: str = "/v1/completions", script: Any = "hi", **options: Any
) -> tuple[int, Any]:
    response = ask(http_event(json.dumps(body), path=path), script, **options)
    return response["statusCode"], json.loads(response["body"])


def sse(stream: StreamedResponse | str) -> list[Any]:
    text = stream if isinstance(stream, str) else b"".join(stream).rpartition(bytes(8))[2].decode()
    events = text.removesuffix("\n\n").split("\n\n")
    assert events.pop() == "data: [DONE]"
    return [json.loads(event.removeprefix("data: ")) for event in events]


def test_a_direct_answer() -> None:
    assert ask({"prompt": "?"}) == {
        "text": "hi",
        "token_ids": [*b"hi", EOS],
        "finish_reason": "stop",
        "model": "bytes",
        "engine": "scripted",
        "usage": {"prompt_tokens": 1, "completion_tokens": 3, "total_tokens": 4, **NONE_CACHED},
    }


@pytest.mark.usefixtures("can_stream")
def test_a_direct_stream() -> None:
    *tokens, last = sse(ask({"prompt": "?", "stream": True}))
    assert tokens == [
        {"token_id": ord("h"), "text": "h"},
        {"token_id": ord("i"), "text": "i"},
        {"token_id": EOS, "text": ""},
    ]
    assert last == {
        "finish_reason": "stop",
        "model": "bytes",
        "engine": "scripted",
        "usage": {"prompt_tokens": 1, "completion_tokens": 3, "total_tokens": 4, **NONE_CACHED},
    }


def test_a_stream_where_nothing_streams_is_the_whole_answer() -> None:
    assert ask({"prompt": "?", "stream": True}) == ask({"prompt": "?"})
    body = {"prompt": "?", "stream": True}
    response = ask(http_event(json.dumps(body)))
    assert response["headers"]["content-type"] == "text/event-stream"
    assert "".join(chunk["choices"][0]["text"] for chunk in sse(response["body"])) == "hi"


@pytest.mark.usefixtures("can_stream")
def test_streaming_may_be_switched_off() -> None:
    assert isinstance(ask({"prompt": "?", "stream": True}), StreamedResponse)
    assert isinstance(ask({"prompt": "?", "stream": True}, environ={"QUICKTHAW_STREAM": "off"}), dict)


@pytest.mark.usefixtures("can_stream")
def test_the_first_token_is_on_its_way_before_the_second_is_computed() -> None:
    fake, engine = session("abc")
    stream: Iterator[bytes] = iter(
        Function(fake, Timeline()).answer({"prompt": "?", "stream": True}, Context())
    )
    assert b'"text":"a"' in next(stream)
    assert len(engine.calls) == 1
    stream.close()  # type: ignore[attr-defined]
    assert len(engine.calls) == 1


@pytest.mark.usefixtures("can_stream")
def test_an_error_before_the_first_token_is_an_ordinary_one() -> None:
    for is_streamed in (False, True):
        answer = ask({"prompt": "?", "stream": is_streamed}, [ShardMissingError("no file", where="/x")])
        assert answer["error"] == {
            "message": "no file: /x",
            "type": "server_error",
            "param": None,
            "code": "model_unavailable",
        }


@pytest.mark.usefixtures("can_stream")
def test_an_error_after_the_first_token_ends_the_stream_with_an_event() -> None:
    stream = iter(ask({"prompt": "?", "stream": True}, [65, ShardMissingError("no file")]))
    next(stream)
    assert json.loads(next(stream).removeprefix(b"data: "))["error"]["message"] == "no file"
    with pytest.raises(ShardMissingError):
        next(stream)


@pytest.mark.usefixtures("can_stream")
def test_the_public_is_told_no_path_and_the_log_is(caplog: pytest.LogCaptureFixture) -> None:
    error = ShardMissingError("no file", where="/srv/x")
    told = "the function failed with ShardMissingError; its log says why"

    status, body = ask_http({"prompt": "?"}, script=[error])
    assert (status, body["error"]["message"]) == (503, told)
    assert "ShardMissingError: no file: /srv/x" in caplog.text

    _prelude, _token, event, *rest = _until_it_fails(
        ask(http_event('{"prompt": "?", "stream": true}'), [65, error])
    )
    assert json.loads(event.removeprefix(b"data: "))["error"]["message"] == told
    assert rest == []


def _until_it_fails(stream: StreamedResponse) -> Iterator[bytes]:
    with suppress(ShardMissingError):
        yield from stream


def test_an_unforeseen_error_is_logged_and_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    answer = ask({"prompt": "?"}, [KeyError("secret")])
    assert answer["error"]["type"] == "server_error"
    assert "secret" not in json.dumps(answer)
    assert "KeyError: 'secret'" in caplog.text


def test_the_deadline_leaves_time_to_answer() -> None:
    function = Function(session("hi")[0], Timeline())
    answer = function.answer({"prompt": "?"}, Context(left_ms=100))
    assert (answer["finish_reason"], answer["token_ids"]) == ("deadline", [])
    response = function.answer(http_event('{"prompt": "?"}'), Context(left_ms=100))
    assert json.loads(response["body"])["choices"][0]["finish_reason"] == "length"


def test_the_start_is_reported_once_after_the_first_answer(capsys: pytest.CaptureFixture[str]) -> None:
    function = Function(session("hi", environ={"QUICKTHAW_LOG": "off"})[0], Timeline())
    function.answer({"prompt": ""}, Context())
    assert capsys.readouterr().out == ""
    function.answer({"prompt": "?"}, Context())
    line = json.loads(capsys.readouterr().out)
    assert line["quickthaw"] == "start"
    assert (line["engine"], line["bytes_read"]) == ("scripted", 2)
    assert {"event", "first token", "embedding"} <= {phase["name"] for phase in line["phases"]}
    function.answer({"prompt": "?"}, Context())
    assert capsys.readouterr().out == ""


# --- anything at all ---


def kind_of(answer: dict[str, Any]) -> object:
    return (json.loads(answer["body"]) if "body" in answer else answer)["error"]["type"]


json_value = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
FIELDS = [
    "prompt",
    "max_tokens",
    "temperature",
    "stop",
    "stream",
    "requestContext",
    "body",
    "rawPath",
    "httpMethod",
]


@settings(max_examples=200)
@given(json_value | st.dictionaries(st.sampled_from(FIELDS), json_value, max_size=4))
def test_no_event_breaks_the_function(event: object) -> None:
    function = Function(session("hi")[0], Timeline())
    answer = function.answer(event, Context())
    json.dumps(answer)
    assert "token_ids" in answer or kind_of(answer) == "invalid_request_error"


def test_200_requests_leave_nothing_behind() -> None:
    fake, _ = session([65] * 1000)
    function = Function(fake, Timeline())
    for _ in range(200):
        assert function.answer({"prompt": "?", "max_tokens": 5}, Context())["finish_reason"] == "length"
    assert fake.take_spans() == []
