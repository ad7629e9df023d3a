# SPDX-License-Identifier: Apache-2.0
import pytest

from quickthaw.handler.errors import FieldError, UnsupportedFieldError
from quickthaw.handler.fields import Fields
from quickthaw.handler.questions import read_messages, read_prompt, read_prompts


@pytest.mark.parametrize("prompt", ["", "text", "é" * 1000, [], [1, 2, 3]])
def test_a_prompt_is_text_or_ids(prompt: object) -> None:
    assert read_prompt(Fields({"prompt": prompt})) == prompt


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        (7, r"prompt: expected a string or a list of token ids, found 7"),
        ("ab\ud83d", r"prompt: expected Unicode text, found a lone surrogate, \\ud83d, at character 2"),
        ([1, True], r"prompt\[1\]: expected a token id, found true \(a boolean\)"),
        ([1.0], r"prompt\[0\]: expected a token id"),
        (["text"], r"prompt\[0\]: expected a token id"),
    ],
)
def test_a_bad_prompt_is_refused(prompt: object, message: str) -> None:
    with pytest.raises(FieldError, match=message):
        read_prompt(Fields({"prompt": prompt}))


def test_messages_may_come_in_text_parts() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    messages = [{"role": "system", "content": "x"}, {"role": "user", "content": parts, "refusal": None}]
    assert read_messages(Fields({"messages": messages})) == [
        {"role": "system", "content": "x"},
        {"role": "user", "content": "ab"},
    ]


@pytest.mark.parametrize(
    ("messages", "field"),
    [
        ([], "messages"),
        ("hi", "messages"),
        (["hi"], "messages[0]"),
        ([{"content": "x"}], "messages[0].role"),
        ([{"role": "tool", "content": "x"}], "messages[0].role"),
        ([{"role": ["user"], "content": "x"}], "messages[0].role"),
        ([{"role": "user"}], "messages[0].content"),
        ([{"role": "user", "content": 7}], "messages[0].content"),
        ([{"role": "user", "content": []}], "messages[0].content"),
        ([{"role": "user", "content": ["x"]}], "messages[0].content[0]"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "messages[0].content[0].type"),
        ([{"role": "user", "content": "\udc00"}], "messages[0].content"),
        ([{"role": "user", "content": "x", "name": "me"}], "messages[0].name"),
        ([{"role": "user", "content": "x", "tool_calls": [1]}], "messages[0].tool_calls"),
    ],
)
def test_a_bad_message_is_refused_by_its_place(messages: object, field: str) -> None:
    with pytest.raises(FieldError) as error:
        read_messages(Fields({"messages": messages}))
    assert error.value.field == field


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [
        ("a", ["a"]),
        ([1, 2], [[1, 2]]),
        ([], [[]]),
        (["a", "b"], ["a", "b"]),
        ([[1], [2, 3]], [[1], [2, 3]]),
        (["a", [1]], ["a", [1]]),
    ],
)
def test_there_may_be_several_prompts(prompt: object, prompts: object) -> None:
    assert read_prompts(Fields({"prompt": prompt})) == prompts


@pytest.mark.parametrize(
    ("prompt", "field"),
    [
        (["a", 1], "prompt[1]"),
        ([1, "a"], "prompt[1]"),
        ([[1], [True]], "prompt[1][0]"),
        ([["a"]], "prompt[0][0]"),
        (["\ud800"], "prompt[0]"),
        (["a"] * 129, "prompt"),
        ({}, "prompt"),
    ],
)
def test_a_bad_one_among_them_is_refused_by_its_place(prompt: object, field: str) -> None:
    with pytest.raises(FieldError) as error:
        read_prompts(Fields({"prompt": prompt}))
    assert error.value.field == field


def test_a_developer_is_the_system() -> None:
    messages = [{"role": "developer", "content": "x"}]
    assert read_messages(Fields({"messages": messages})) == [{"role": "system", "content": "x"}]


@pytest.mark.parametrize(
    "message",
    [
        {"role": "tool", "content": "x", "tool_call_id": "1"},
        {"role": "function", "content": "x"},
        {"role": "assistant", "content": None, "tool_calls": [{}]},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]},
        {"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]},
        {"role": "user", "content": "x", "name": "me"},
    ],
)
def test_what_clients_know_and_we_do_not_is_refused_as_such(message: object) -> None:
    with pytest.raises(UnsupportedFieldError):
        read_messages(Fields({"messages": [message]}))
