# SPDX-License-Identifier: Apache-2.0
"""The routes, through the whole function: what a client of OpenAI's API sends and gets."""

import json
from typing import Any

import pytest

from quickthaw.handler.function import Function
from quickthaw.handler.timeline import Timeline
from tests.unit.handler.fakes import session
from tests.unit.handler.test_events import http_event, recorded
from tests.unit.handler.test_function import Context, ask, ask_http, can_stream, sse

__all__ = ["can_stream"]  # a fixture


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/healthz", 200),
        ("HEAD", "/healthz", 200),
        ("GET", "/v1/models", 200),
        ("GET", "/v1/models/bytes", 200),
        ("GET", "/v1/models/other", 404),
        ("POST", "/v1/models", 405),
        ("GET", "/v1/completions", 405),
        ("GET", "/", 404),
        ("POST", "/v1/embeddings", 404),
    ],
)
def test_routes(method: str, path: str, status: int) -> None:
    response = ask(http_event(None, method=method, path=path))
    assert response["statusCode"] == status
    assert ("allow" in response["headers"]) == (status == 405)
    if method != "HEAD":
        assert ("error" in json.loads(response["body"])) == (status != 200)


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        ({"prompt": "?", "model": "gpt-4"}, "model", "model_not_found"),
        ({}, "prompt", "invalid_value"),
        ({"prompt": ""}, "prompt", "invalid_value"),
        ({"prompt": "x" * 1_000_000}, "prompt", "context_length_exceeded"),
        ({"prompt": "?", "max_tokens": "7"}, "max_tokens", "invalid_value"),
        ({"prompt": "?", "n": 0}, "n", "invalid_value"),
        ({"prompt": "?", "n": 129}, "n", "invalid_value"),
        ({"prompt": "?", "n": 2, "best_of": 3}, "best_of", "unsupported_parameter"),
        ({"prompt": "?", "logprobs": True}, "logprobs", "invalid_value"),
        ({"prompt": "?", "logprobs": 6}, "logprobs", "invalid_value"),
        ({"prompt": "?", "max_tokens": 0}, "max_tokens", "invalid_value"),
        ({"prompt": ["?", ""]}, "prompt[1]", "invalid_value"),
        ({"prompt": [[1], [1, 257]]}, "prompt[1][1]", "invalid_value"),
        ({"prompt": "?", "logit_bias": {"257": 1}}, "logit_bias.257", "invalid_value"),
        ({"prompt": "?", "suffix": "x"}, "suffix", "unsupported_parameter"),
        ({"prompt": "?", "promt": 3}, "promt", "unknown_parameter"),
    ],
)
def test_bad_requests_name_the_field(body: dict[str, object], param: str, code: str) -> None:
    status, answer = ask_http(body)
    assert status == (404 if param == "model" else 400)
    assert (answer["error"]["param"], answer["error"]["code"]) == (param, code)
    assert answer["error"]["type"] == "invalid_request_error"


def test_both_names_for_the_length_are_one_too_many() -> None:
    messages = [{"role": "user", "content": "?"}]
    body = {"messages": messages, "max_tokens": 1, "max_completion_tokens": 1}
    error = ask_http(body, "/v1/chat/completions")[1]["error"]
    assert error["message"] == "max_tokens: expected either max_tokens or max_completion_tokens, found both"


@pytest.mark.parametrize("null", ["max_tokens", "max_completion_tokens"])
@pytest.mark.parametrize("named", [{}, {"max_tokens": 1}, {"max_completion_tokens": 1}])
def test_a_name_for_the_length_that_is_null_is_absent(null: str, named: dict[str, Any]) -> None:
    body = {"messages": [{"role": "user", "content": "?"}], null: None, **named}
    status, answer = ask_http(body, "/v1/chat/completions")
    assert status == 200, answer


def test_what_the_chat_template_refuses_is_the_callers_mistake() -> None:
    body = {"messages": [{"role": "user", "content": "?"}]}
    chat = "{{ raise_exception('roles must alternate') }}"
    status, answer = ask_http(body, "/v1/chat/completions", chat=chat)
    assert status == 400
    assert "roles must alternate" in answer["error"]["message"]


# --- as it is sent ---


@pytest.mark.usefixtures("can_stream")
@pytest.mark.parametrize("name", ["rest_api_completion", "http_api_completion", "load_balancer_completion"])
def test_every_sender_gets_its_answer(name: str) -> None:
    response = ask(recorded(name), script="hello")
    assert response["statusCode"] == 200
    assert json.loads(response["body"])["choices"][0]["text"] == "he"


@pytest.mark.usefixtures("can_stream")
@pytest.mark.parametrize("name", ["rest_api_stream", "function_url_stream"])
def test_who_can_pass_a_stream_on_gets_one(name: str) -> None:
    *chunks, usage = sse(ask(recorded(name), script="hi"))
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks) == "hi"
    assert usage["usage"]["completion_tokens"] == 3


@pytest.mark.usefixtures("can_stream")
@pytest.mark.parametrize("name", ["http_api_completion", "load_balancer_completion"])
def test_who_cannot_gets_it_all_at_once(name: str) -> None:
    event = {**recorded(name), "isBase64Encoded": False, "body": '{"prompt": "?", "stream": true}'}
    response = ask(event)
    assert response["headers"]["content-type"] == "text/event-stream"
    assert "".join(chunk["choices"][0]["text"] for chunk in sse(response["body"])) == "hi"


def test_a_request_for_something_else_is_404_and_health_is_a_get_away() -> None:
    assert ask(recorded("rest_api"))["statusCode"] == 404
    assert json.loads(ask(recorded("http_api_health"))["body"])["status"] == "ok"


@pytest.mark.usefixtures("can_stream")
def test_where_everything_is_streamed_an_error_is_too() -> None:
    event = http_event('{"prompt": 7}')
    head, _, body = b"".join(ask(event, environ={"QUICKTHAW_STREAM": "always"})).partition(bytes(8))
    assert json.loads(head)["statusCode"] == 400
    assert json.loads(body)["error"]["param"] == "prompt"
    assert isinstance(ask(event, environ={"QUICKTHAW_STREAM": "on"}), dict)


# --- a model's id ---


@pytest.mark.parametrize("path", ["/v1/models/a/b%20c", "/v1/models/a%2Fb%20c", "/v1/models/a/b c"])
def test_a_models_id_may_be_encoded(path: str) -> None:
    response = ask(http_event(None, "GET", path), name="a/b c")
    assert response["statusCode"] == 200
    assert json.loads(response["body"])["id"] == "a/b c"


# --- at the door ---

KEYS = {"QUICKTHAW_API_KEYS": "one, two"}


def status(method: str, path: str, authorization: str | None, body: str | None = None) -> int:
    headers = {} if authorization is None else {"Authorization": authorization}
    return int(ask(http_event(body, method, path, headers=headers), environ=KEYS)["statusCode"])


def test_a_key_opens_the_api_and_nothing_else_needs_one() -> None:
    body = '{"prompt": "?"}'
    assert status("POST", "/v1/completions", "Bearer two", body) == 200
    assert status("GET", "/v1/models", "bearer  one") == 200
    for authorization in (
        None,
        "",
        "Bearer",
        "Bearer three",
        "Bearer o",
        "Basic one",
        "Bearer one,Bearer two",
    ):
        assert status("POST", "/v1/completions", authorization, body) == 401
        assert status("GET", "/v1/models/bytes", authorization) == 401
        assert status("GET", "/healthz", authorization) == 200
        assert status("OPTIONS", "/v1/completions", authorization) == 204
    assert ask({"prompt": "?"}, environ=KEYS)["text"] == "hi"


def test_who_has_no_key_is_told_what_is_missing() -> None:
    response = ask(http_event('{"prompt": "?"}', headers={"authorization": "Bearer guess"}), environ=KEYS)
    assert response["headers"]["www-authenticate"] == "Bearer"
    assert json.loads(response["body"])["error"] == {
        "message": "the API key is not known",
        "type": "invalid_request_error",
        "param": None,
        "code": "invalid_api_key",
    }


def test_options_and_405_say_what_is_allowed() -> None:
    response = ask(http_event(None, "OPTIONS", "/v1/models"))
    assert (response["statusCode"], response["headers"]["allow"]) == (204, "GET, HEAD, OPTIONS")
    assert ask(http_event(None, "PUT", "/v1/completions"))["headers"]["allow"] == "POST"
    assert ask(http_event(None, "OPTIONS", "/nowhere"))["statusCode"] == 404


def test_a_page_of_another_origin_may_read_every_answer_if_it_is_allowed() -> None:
    environ = {"QUICKTHAW_CORS_ORIGINS": "https://a.example, https://b.example"}
    for method, path, origin, allowed in (
        ("OPTIONS", "/v1/completions", "https://b.example", "https://b.example"),
        ("GET", "/v1/models", "https://a.example", "https://a.example"),
        ("GET", "/nowhere", "https://a.example", "https://a.example"),
        ("GET", "/v1/models", "https://c.example", None),
    ):
        event = http_event(None, method, path, headers={"Origin": origin})
        assert ask(event, environ=environ)["headers"].get("access-control-allow-origin") == allowed


def test_every_response_has_the_requests_id() -> None:
    for path in ("/healthz", "/nowhere"):
        assert ask(http_event(None, "GET", path))["headers"]["x-request-id"] == Context.aws_request_id


@pytest.mark.usefixtures("can_stream")
def test_who_comes_while_another_is_answered_is_asked_to_come_again() -> None:
    function = Function(session("hello")[0], Timeline())
    event = http_event('{"prompt": "?", "stream": true}')
    stream = iter(function.answer(event, Context()))
    next(stream)
    refused: dict[str, Any] = function.answer(event, Context())
    assert (refused["statusCode"], refused["headers"]["retry-after"]) == (429, "1")
    assert json.loads(refused["body"])["error"]["type"] == "rate_limit_error"
    stream.close()  # type: ignore[attr-defined]
    assert function.answer({"prompt": "?"}, Context())["finish_reason"] == "stop"
