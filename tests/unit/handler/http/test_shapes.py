# SPDX-License-Identifier: Apache-2.0
"""The objects that answers come in, through the whole function."""

import json

import pytest

from tests.unit.handler.fakes import EOS, NONE_CACHED
from tests.unit.handler.test_events import http_event
from tests.unit.handler.test_function import ask, ask_http, can_stream, sse

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
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2, **NONE_CACHED},
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
        "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10, **NONE_CACHED},
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


# --- several choices, several prompts ---


def test_choices_are_numbered_over_the_prompts_and_counted_together() -> None:
    body = {"prompt": ["ab", [1, 2, 3]], "n": 2, "max_tokens": 2}
    answer = ask_http(body, script=[65, 66, 67, 68, EOS, EOS])[1]
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3]
    # A prompt is computed once, and both of its choices begin with what the engine then said.
    assert [choice["text"] for choice in answer["choices"]] == ["AB", "AC", "D", "D"]
    assert [choice["finish_reason"] for choice in answer["choices"]] == ["length", "length", "stop", "stop"]
    assert answer["usage"] == {"prompt_tokens": 5, "completion_tokens": 8, "total_tokens": 13, **NONE_CACHED}


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
    assert answer["usage"] == {"prompt_tokens": 2, "completion_tokens": 0, "total_tokens": 2, **NONE_CACHED}


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
