# SPDX-License-Identifier: Apache-2.0
"""Every shape of answer, however it is cut into chunks."""

import json
from typing import Any

import pytest

from quickthaw.handler.command.answer import Answer, read_messages
from quickthaw.snapshot.errors import FunctionError

SSE = (
    b'data: {"token_id":5,"text":"a\\u0000b"}\n\n'
    b'data: {"token_id":6,"text":""}\n\n'
    b'data: {"text":"\xc3\xa9"}\n\n'
    b'data: {"finish_reason":"stop","model":"m","usage":{"total_tokens":3}}\n\n'
    b"data: [DONE]\n\n"
)


def _read(*chunks: bytes) -> Answer:
    answer = Answer()
    for message in read_messages(chunks):
        answer.take(message)
    return answer


def test_a_streamed_answer() -> None:
    answer = _read(SSE)

    assert answer.text == "a\0bé"
    assert answer.token_ids == [5, 6]
    assert answer.last["finish_reason"] == "stop"
    assert answer.last["model"] == "m"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50])
def test_chunks_may_be_cut_anywhere(size: int) -> None:
    prelude = b'{"statusCode": 200, "headers": {}}' + bytes(8)
    for body in (SSE, prelude + SSE):
        chunks = [body[start : start + size] for start in range(0, len(body), size)]
        assert _read(*chunks) == _read(SSE)


def test_a_text_is_there_as_soon_as_its_event_is() -> None:
    chunks = iter([SSE[:60], SSE[60:]])
    assert next(read_messages(chunks)) == {"token_id": 5, "text": "a\0b"}
    assert next(chunks) == SSE[60:]  # not asked for yet


def test_a_whole_answer() -> None:
    document = {"text": "hi", "token_ids": [1, 2], "finish_reason": "length", "model": "m"}
    answer = _read(json.dumps(document).encode())

    assert (answer.text, answer.token_ids, answer.last["finish_reason"]) == ("hi", [1, 2], "length")


@pytest.mark.parametrize(
    "choice",
    [{"text": "hi"}, {"message": {"role": "assistant", "content": "hi"}}, {"delta": {"content": "hi"}}],
)
def test_openais_shapes(choice: dict[str, Any]) -> None:
    body = json.dumps({"model": "m", "choices": [{**choice, "finish_reason": "stop"}]})
    answer = _read(json.dumps({"statusCode": 200, "body": body}).encode())

    assert (answer.text, answer.last["finish_reason"], answer.last["model"]) == ("hi", "stop", "m")


def test_an_error_in_the_answer() -> None:
    body = json.dumps({"error": {"message": "prompt: expected text", "type": "invalid_request_error"}})
    for chunk in (body, json.dumps({"statusCode": 400, "body": body}), f"data: {body}\n\n"):
        with pytest.raises(FunctionError, match="invalid_request_error: prompt: expected text"):
            _read(chunk.encode())


def test_an_error_of_another_shape() -> None:
    with pytest.raises(FunctionError, match="Error: broken"):
        _read(b'{"error": "broken"}')
