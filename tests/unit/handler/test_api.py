# SPDX-License-Identifier: Apache-2.0
"""The routes, through the whole function: what a client of OpenAI's API sends and gets."""

import json
from typing import Any

import pytest

from quickthaw.handler.function import Function
from quickthaw.handler.timeline import Timeline
from tests.unit.handler.fakes import EOS, session
from tests.unit.handler.test_events import http_event, recorded
from tests.unit.handler.test_function import Context, ask, ask_http, can_stream, sse

__all__ = ["can_stream"]  # a fixture


def test_a_completion() -> None:
    status, body = ask_http({"model": "bytes", "prompt": "?", "temperature": 0, "max_tokens": 1})
    assert status == 200
    assert body.pop("id").startswith("cmpl-")
    assert isinstance(body.pop("created"), int)
    assert body == {
        "object": "text_completion",
        "model": "bytes",
        "choices": [{"index": 0, "text": "h", "logprobs": None, "finish_reason": "length"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }


def test_a_chat_completion() -> None:
    messages = [{"role": "user", "content": "?"}]
    status, body = ask_http({"messages": messages, "max_completion_tokens": 9}, "/v1/chat/completions")
    assert status == 200
    assert body.pop("id").startswith("chatcmpl-")
    assert isinstance(body.pop("created"), int)
    message = {"role": "assistant", "content": "hi", "refusal": None}
    assert body == {
        "object": "chat.completion",
        "model": "bytes",
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
    }


@pytest.mark.usefixtures("can_stream")
def test_a_chat_stream() -> None:
    body = {
        "messages": [{"role": "user", "content": "?"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    chunks = sse(ask(http_event(json.dumps(body), path="/v1/chat/completions")))
    assert len({(chunk["id"], chunk["created"]) for chunk in chunks}) == 1
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    usage = chunks.pop()
    assert (usage["choices"], usage["usage"]["completion_tokens"]) == ([], 3)
    assert all(chunk["usage"] is None for chunk in chunks)
    choices = [chunk["choices"][0] for chunk in chunks]
    assert choices[0]["delta"] == {"role": "assistant", "content": "h"}
    assert [choice["delta"].get("content") for choice in choices] == ["h", "i", "", None]
    assert [choice["finish_reason"] for choice in choices] == [None, None, None, "stop"]


@pytest.mark.usefixtures("can_stream")
def test_a_completion_stream() -> None:
    chunks = sse(ask(http_event('{"prompt": "?", "stream": true}')))
    assert {chunk["object"] for chunk in chunks} == {"text_completion"}
    assert [chunk["choices"][0]["text"] for chunk in chunks] == ["h", "i", "", ""]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None, None, None, "stop"]
    assert "usage" not in chunks[0]


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
    assert ask_http(body, "/v1/chat/completions")[1]["error"]["param"] == "max_tokens"


def test_what_the_chat_template_refuses_is_the_callers_mistake() -> None:
    body = {"messages": [{"role": "user", "content": "?"}]}
    chat = "{{ raise_exception('roles must alternate') }}"
    status, answer = ask_http(body, "/v1/chat/completions", chat=chat)
    assert status == 400
    assert "roles must alternate" in answer["error"]["message"]


# --- several choices, several prompts ---


def test_choices_are_numbered_over_the_prompts_and_counted_together() -> None:
    body = {"prompt": ["ab", [1, 2, 3]], "n": 2, "max_tokens": 2}
    answer = ask_http(body, script=[65, 66, 67, 68, EOS, EOS])[1]
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3]
    # A prompt is computed once, and both of its choices begin with what the engine then said.
    assert [choice["text"] for choice in answer["choices"]] == ["AB", "AC", "D", "D"]
    assert [choice["finish_reason"] for choice in answer["choices"]] == ["length", "length", "stop", "stop"]
    assert answer["usage"] == {"prompt_tokens": 5, "completion_tokens": 8, "total_tokens": 13}


@pytest.mark.usefixtures("can_stream")
def test_a_stream_of_choices() -> None:
    messages = [{"role": "user", "content": "?"}]
    body = json.dumps({"messages": messages, "n": 2, "stream": True, "max_tokens": 1})
    chunks = sse(ask(http_event(body, path="/v1/chat/completions"), [65]))
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    assert [choice["index"] for choice in choices] == [0, 0, 1, 1]
    first = {"role": "assistant", "content": "A"}
    assert [choice["delta"] for choice in choices] == [first, {}, first, {}]
    assert [choice["finish_reason"] for choice in choices] == [None, "length", None, "length"]


def test_a_seed_gives_each_choice_its_own_numbers() -> None:
    def texts(n: int, seed: int = 5) -> list[str]:
        # An engine that knows nothing: every token is as likely, and most are letters of ASCII.
        body = {"prompt": "?", "n": n, "max_tokens": 9, "seed": seed, "temperature": 1}
        return [choice["text"] for choice in ask_http(body, script=[-1] * 100)[1]["choices"]]

    assert texts(3) == texts(3)
    assert texts(3)[:1] == texts(1)
    assert len(set(texts(3))) == 3
    assert texts(3, seed=6) != texts(3)


# --- echo ---


def test_an_echo_begins_with_the_prompt() -> None:
    body = {"prompt": ["é?", [65, 66]], "echo": True, "max_tokens": 1}
    answer = ask_http(body, script=[67, 68])[1]
    assert [choice["text"] for choice in answer["choices"]] == ["é?C", "ABD"]
    assert answer["usage"]["completion_tokens"] == 2


def test_an_echo_alone_scores_a_prompt() -> None:
    body = {"prompt": "ab", "echo": True, "max_tokens": 0, "logprobs": 1}
    answer = ask_http(body, script=[ord("b"), ord("c")])[1]
    choice = answer["choices"][0]
    assert (choice["text"], choice["finish_reason"]) == ("ab", "length")
    assert choice["logprobs"] == {
        "tokens": ["a", "b"],
        "token_logprobs": [None, 0.0],
        "top_logprobs": [None, {"b": 0.0}],
        "text_offset": [0, 1],
    }
    assert answer["usage"] == {"prompt_tokens": 2, "completion_tokens": 0, "total_tokens": 2}


def test_a_stop_string_in_the_prompt_ends_nothing() -> None:
    body = {"prompt": "a.", "echo": True, "stop": "."}
    assert ask_http(body, script="b.")[1]["choices"][0]["text"] == "a.b"


# --- log probabilities ---


def test_the_log_probabilities_of_a_completion() -> None:
    body = {"prompt": "?", "logprobs": 0, "temperature": 0}
    found = ask_http(body, script="né")[1]["choices"][0]["logprobs"]
    assert found == {
        "tokens": ["n", "bytes:\\xc3", "bytes:\\xa9"],
        "token_logprobs": [0.0, 0.0, 0.0],
        "top_logprobs": [{"n": 0.0}, {"bytes:\\xc3": 0.0}, {"bytes:\\xa9": 0.0}],
        "text_offset": [0, 1, 2],
    }


def test_the_log_probabilities_of_a_chat() -> None:
    body = {"messages": [{"role": "user", "content": "?"}], "logprobs": True, "top_logprobs": 2}
    choice = ask_http(body, "/v1/chat/completions", script="h")[1]["choices"][0]
    token = {"token": "h", "logprob": 0.0, "bytes": [104]}
    second = {"token": "\0", "logprob": -50.0, "bytes": [0]}
    assert choice["logprobs"] == {"content": [{**token, "top_logprobs": [token, second]}], "refusal": None}


@pytest.mark.usefixtures("can_stream")
def test_log_probabilities_wait_for_their_text_and_tell_no_stop_string() -> None:
    body = {"messages": [{"role": "user", "content": "?"}], "logprobs": True, "stop": "xyz", "stream": True}
    chunks = sse(ask(http_event(json.dumps(body), path="/v1/chat/completions"), "axbxyz!"))
    choices = [chunk["choices"][0] for chunk in chunks]
    listed = [
        "".join(each["token"] for each in (choice["logprobs"] or {"content": []})["content"])
        for choice in choices
    ]
    shown = [choice["delta"].get("content", "") for choice in choices]
    assert listed == shown == ["a", "", "xb", "", "", "", ""]


def test_no_log_probabilities_unless_asked() -> None:
    body = {"messages": [{"role": "user", "content": "?"}], "logprobs": False, "top_logprobs": 0}
    assert ask_http(body, "/v1/chat/completions")[1]["choices"][0]["logprobs"] is None
    body["top_logprobs"] = 1
    assert ask_http(body, "/v1/chat/completions")[1]["error"]["param"] == "top_logprobs"


def test_a_model_without_a_tokenizer_names_tokens_by_id() -> None:
    body = {"prompt": [1], "max_tokens": 1, "logprobs": 1}
    found = ask_http(body, script=[5], tokenizer=False)[1]["choices"][0]["logprobs"]
    assert (found["tokens"], found["text_offset"]) == (["token_id:5"], [0])


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
