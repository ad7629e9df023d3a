# SPDX-License-Identifier: Apache-2.0
"""The `openai` package, really run, against the function behind the gateway."""

import asyncio
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import pytest

from tests import shards
from tests.contract.fronts import OURS, TIMEOUT_S, Service, serving, serving_source, wait_until

KEY = "sk-test"
MESSAGES: list[Any] = [{"role": "user", "content": "Hello there, who are you?"}]
GREEDY: dict[str, Any] = {"model": "tiny", "temperature": 0, "max_tokens": 12}
CHAT: dict[str, Any] = {**GREEDY, "messages": MESSAGES}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A tiny random model with a tokenizer and a chat template, behind a key."""
    directory = tmp_path_factory.mktemp("tiny")
    environ = {
        "QUICKTHAW_SHARDS": str(shards.make_chat(directory)),
        "QUICKTHAW_CACHE": str(directory / "cache"),
        "QUICKTHAW_API_KEYS": KEY,
    }
    with serving(OURS, directory, environ) as service:
        yield service


@pytest.fixture
def client(tiny: Service) -> Iterator[openai.OpenAI]:
    with _client(tiny) as client:
        yield client


def _client(service: Service, **options: Any) -> openai.OpenAI:
    options = {"api_key": KEY, "max_retries": 0, "timeout": TIMEOUT_S, **options}
    return openai.OpenAI(base_url=service.url + "/v1", **options)


# --- answers ---


def test_models(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["tiny"]
    assert client.models.retrieve("tiny").owned_by == "quickthaw"


def test_a_chat(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(**CHAT)

    assert answer.object == "chat.completion"
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].message.content
    assert answer.choices[0].finish_reason in ("stop", "length")
    assert answer.usage is not None
    assert 0 < answer.usage.completion_tokens <= 12
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_a_streamed_chat_says_the_same(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(**CHAT)
    stream = client.chat.completions.create(**CHAT, stream=True, stream_options={"include_usage": True})
    *chunks, last = list(stream)

    assert "".join(each.choices[0].delta.content or "" for each in chunks) == whole.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [each.choices[0].finish_reason for each in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1].choices[0].finish_reason == whole.choices[0].finish_reason
    assert (last.choices, last.usage.total_tokens) == ([], whole.usage.total_tokens)
    assert len({each.id for each in (*chunks, last)}) == 1


def test_a_completion_of_text_and_of_token_ids(client: openai.OpenAI) -> None:
    of_text = client.completions.create(**GREEDY, prompt="The capital")
    of_ids = client.completions.create(**GREEDY, prompt=[5, 6, 7])
    streamed = client.completions.create(**GREEDY, prompt=[5, 6, 7], stream=True)

    assert of_text.usage is not None
    assert of_text.usage.prompt_tokens > 0
    assert of_ids.usage is not None
    assert of_ids.usage.prompt_tokens == 3
    assert "".join(chunk.choices[0].text for chunk in streamed) == of_ids.choices[0].text


def test_choices_and_log_probabilities(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(**{**CHAT, "temperature": 1, "seed": 3}, n=2, logprobs=True)

    assert [choice.index for choice in answer.choices] == [0, 1]
    for choice in answer.choices:
        assert choice.logprobs is not None
        assert choice.logprobs.content is not None
        assert all(token.logprob <= 0 for token in choice.logprobs.content)


def test_the_async_client_and_many_at_once(tiny: Service) -> None:
    async def ask_all() -> tuple[list[Any], list[str]]:
        async with openai.AsyncOpenAI(base_url=tiny.url + "/v1", api_key=KEY, max_retries=0) as client:
            prompts = [[5, 6, n] for n in range(8)]
            answers = await asyncio.gather(
                *(client.completions.create(**GREEDY, prompt=prompt) for prompt in (*prompts, *prompts))
            )
            stream = await client.chat.completions.create(**CHAT, stream=True)
            texts = [chunk.choices[0].delta.content or "" async for chunk in stream]
            return answers, texts

    answers, texts = asyncio.run(ask_all())

    said = [answer.choices[0].text for answer in answers]
    assert said[:8] == said[8:]  # everyone got their own
    assert len(set(said)) > 1
    assert len(texts) > 1


def test_leaving_a_stream(tiny: Service, client: openai.OpenAI) -> None:
    n_lines = len(tiny.request_lines())
    with client.completions.create(**{**GREEDY, "max_tokens": 240}, prompt=[5], stream=True) as stream:
        next(iter(stream))
    wait_until(lambda: len(tiny.request_lines()) > n_lines)

    assert tiny.request_lines()[n_lines]["completion_tokens"] < 240
    assert client.chat.completions.create(**CHAT).choices


# --- errors ---


def test_a_bad_field(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="max_tokens") as failure:
        client.chat.completions.create(**{**CHAT, "max_tokens": 0})
    assert failure.value.param == "max_tokens"
    assert failure.value.type == "invalid_request_error"


def test_a_prompt_that_is_too_long(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as failure:
        client.completions.create(**GREEDY, prompt="word " * 5000)
    assert failure.value.code == "context_length_exceeded"


def test_tools_are_refused_by_name(client: openai.OpenAI) -> None:
    tool: Any = {"type": "function", "function": {"name": "f", "parameters": {}}}
    with pytest.raises(openai.BadRequestError, match="tools"):
        client.chat.completions.create(**CHAT, tools=[tool])


def test_another_model_or_route(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="gpt-4") as failure:
        client.chat.completions.create(**{**CHAT, "model": "gpt-4"})
    assert failure.value.code == "model_not_found"
    with pytest.raises(openai.NotFoundError):
        client.embeddings.create(model="tiny", input="text")


def test_a_wrong_key(tiny: Service) -> None:
    with _client(tiny, api_key="sk-wrong") as client, pytest.raises(openai.AuthenticationError):
        client.models.list()


def test_a_request_over_the_gateways_limit(client: openai.OpenAI) -> None:
    with pytest.raises(openai.APIStatusError, match="too large") as failure:
        client.completions.create(**GREEDY, prompt="x" * (7 * 1024 * 1024))
    assert failure.value.status_code == 413


def test_a_function_that_is_killed_in_the_middle(tmp_path: Path) -> None:
    source = """
import time
from quickthaw.handler.app import lambda_handler
from quickthaw.layers.interpreter import Interpreter
forward = Interpreter.forward
def slow(self, token_ids, cache):
    time.sleep(0.02)
    return forward(self, token_ids, cache)
Interpreter.forward = slow
handle = lambda_handler
"""
    environ = {"QUICKTHAW_SHARDS": str(shards.make_chat(tmp_path)), "QUICKTHAW_CACHE": str(tmp_path / "c")}
    request: dict[str, Any] = {**GREEDY, "max_tokens": 240, "prompt": [5, 6], "logit_bias": {"2": -100}}
    with serving_source(tmp_path, source, environ=environ) as service, _client(service) as client:
        stream = iter(client.completions.create(**request, stream=True))
        next(stream)
        os.kill(service.starts[0].pid, signal.SIGKILL)
        with pytest.raises(openai.APIError, match="signal: killed"):
            list(stream)
        assert client.completions.create(**{**request, "max_tokens": 2}).choices


# --- retries ---


def test_a_busy_function_is_asked_again(tmp_path: Path) -> None:
    source = """
from pathlib import Path
import json, time
def handle(event, context):
    Path("began").touch()
    while not Path("go").exists():
        time.sleep(0.001)
    return {"statusCode": 200, "body": json.dumps({"object": "list", "data": []})}
"""
    with (
        serving_source(tmp_path, source, max_waiting=0) as service,
        ThreadPoolExecutor() as threads,
        _client(service) as client,
    ):
        first = threads.submit(client.models.list)
        wait_until((tmp_path / "began").exists)
        with pytest.raises(openai.RateLimitError, match="busy"):
            client.models.list()
        second = threads.submit(client.with_options(max_retries=5).models.list)
        (tmp_path / "go").touch()

        assert second.result().data == first.result().data == []


def test_an_unavailable_function_is_asked_again(tmp_path: Path) -> None:
    source = """
import json
n = 0
def handle(event, context):
    global n
    n += 1
    if n == 1:
        return {"statusCode": 503, "headers": {"retry-after-ms": "1"}, "body": "{}"}
    return {"statusCode": 200, "body": json.dumps({"object": "list", "data": []})}
"""
    with serving_source(tmp_path, source) as service, _client(service, max_retries=1) as client:
        assert client.models.list().data == []


def test_a_timeout(tmp_path: Path) -> None:
    source = "import time\ndef handle(event, context):\n    time.sleep(60)\n"
    with (
        serving_source(tmp_path, source, timeout_s=0.5) as service,
        _client(service) as client,
        pytest.raises(openai.InternalServerError, match=r"timed out after 0\.50 seconds") as failure,
    ):
        client.models.list()
    assert failure.value.status_code == 504


# --- the real model ---


def test_smollm2(tmp_path: Path, smollm2_shards: Path) -> None:
    environ = {"QUICKTHAW_SHARDS": str(smollm2_shards), "QUICKTHAW_CACHE": str(tmp_path / "cache")}
    question: Any = [{"role": "user", "content": "What is the capital of France?"}]
    request: dict[str, Any] = {
        "model": "SmolLM2-135M-Instruct",
        "messages": question,
        "temperature": 0,
        "max_completion_tokens": 16,
    }
    with serving(OURS, tmp_path, environ) as service, _client(service) as client:
        streamed = client.chat.completions.create(**request, stream=True)
        text = "".join(chunk.choices[0].delta.content or "" for chunk in streamed)
        whole = client.chat.completions.create(**request)

    assert text == whole.choices[0].message.content == "The capital of France is Paris."
    assert whole.choices[0].finish_reason == "stop"
