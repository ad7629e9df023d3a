# SPDX-License-Identifier: Apache-2.0
"""A start with a state image: what it need not compute, and that a bad image costs nothing but time."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from quickthaw.handler.command.image_command import make_image
from quickthaw.handler.config import HandlerConfig
from quickthaw.handler.errors import FieldError, RequestError
from quickthaw.handler.generation import Generation, Piece
from quickthaw.handler.session import Session
from tests import models, shards
from tests.unit.handler.test_events import http_event

PREFIX = [5, 6, 7, 8, 9, 10, 11, 12, 13, 14]
SYSTEM = {"role": "system", "content": "You are brief. You are kind. You are true to what you know."}


def config(shard_set: Path, **environ: str) -> HandlerConfig:
    fixed = {"QUICKTHAW_SHARDS": str(shard_set), "QUICKTHAW_VERIFY": "never", "QUICKTHAW_THREADS": "1"}
    return HandlerConfig.from_env({**fixed, **environ})


def opened(shard_set: Path, image: Path) -> Session:
    return Session.open(config(shard_set, QUICKTHAW_STATE_IMAGE=str(image)))


def ask(session: Session, prompt: list[int]) -> tuple[list[Piece], int]:
    completion = session.generate(Generation(8, [prompt]))
    pieces = list(completion)
    session.forget()
    return pieces, completion.usage()["prompt_tokens_details"]["cached_tokens"]


def fresh(shard_set: Path, prompt: list[int]) -> list[Piece]:
    return ask(Session.open(config(shard_set)), prompt)[0]


def reasons(session: Session) -> list[str]:
    names = [span.name for span in session.take_spans()]
    return [name.removeprefix("state image ignored: ") for name in names if "ignored" in name]


@pytest.fixture
def shard_set(tmp_path: Path) -> Path:
    return shards.make(tmp_path)


@pytest.fixture
def image(shard_set: Path, tmp_path: Path) -> Path:
    path = tmp_path / "state.image"
    assert make_image(path, config(shard_set), {"prompt": PREFIX}).n_tokens == len(PREFIX)
    return path


@pytest.mark.parametrize("name", models.CONFIGS)
def test_answers_are_those_of_a_start_without(name: str, tmp_path: Path) -> None:
    shard_set, path = shards.make(tmp_path, name), tmp_path / "image"
    make_image(path, config(shard_set), {"prompt": PREFIX})
    for prompt, n_cached in (([*PREFIX, 20, 21], 10), (PREFIX, 9), ([*PREFIX[:5], 30], 5), ([30, 31], 0)):
        pieces, n_found = ask(opened(shard_set, path), prompt)
        assert pieces == fresh(shard_set, prompt)
        assert n_found == (0 if name == "llama-dynamic" else n_cached)


def test_the_prefix_comes_back_after_another_prompt(shard_set: Path, image: Path) -> None:
    session = opened(shard_set, image)
    prompts = [[*PREFIX, 20], [40, 41], [*PREFIX, 21, 22], [*PREFIX, 21, 22, 23]]
    found = [ask(session, prompt) for prompt in prompts]
    assert [n_cached for _, n_cached in found] == [10, 0, 10, 12]
    assert [pieces for pieces, _ in found] == [fresh(shard_set, prompt) for prompt in prompts]


def test_less_than_half_of_it_is_not_worth_the_check(shard_set: Path, image: Path) -> None:
    assert ask(opened(shard_set, image), [*PREFIX[:4], 30])[1] == 0


def test_the_timeline_says_what_it_brought(shard_set: Path, image: Path) -> None:
    session = opened(shard_set, image)
    next(session.generate(Generation(2, [[*PREFIX, 1]])))
    assert {"state image", "prefix"} <= {span.name for span in session.take_spans()}
    plain = Session.open(config(shard_set))
    next(plain.generate(Generation(2, [[*PREFIX, 1]])))
    assert {"state image", "prefix"}.isdisjoint({span.name for span in plain.take_spans()})


# --- a bad one: never wrong, never fatal ---


def section(name: str) -> Callable[[bytes], bytes]:
    def damaged(data: bytes) -> bytes:
        head = json.loads(data[20 : 20 + int.from_bytes(data[12:16], "little")])
        at = head["sections"][name][0]
        return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]

    return damaged


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (section("kv"), "section kv is damaged"),
        (section("token_ids"), "section token_ids is damaged"),
        (section("working_set"), "section working_set is damaged"),
        (lambda data: data[:-1], "cut short"),
        (lambda data: data[1:], "not a state image"),
        (lambda data: data[:0], "cut short"),
    ],
)
def test_a_damaged_one_is_ignored_with_the_reason(
    shard_set: Path, image: Path, damage: Callable[[bytes], bytes], reason: str
) -> None:
    image.write_bytes(damage(image.read_bytes()))
    session, prompt = opened(shard_set, image), [*PREFIX, 20]
    completion = session.generate(Generation(8, [prompt]))
    first = next(completion)
    assert reasons(session) == [reason]
    assert [first, *completion] == fresh(shard_set, prompt)
    assert completion.usage()["prompt_tokens_details"]["cached_tokens"] == 0
    assert ask(session, [9, *PREFIX])[1] == 0
    assert ask(session, prompt) == (fresh(shard_set, prompt), 0)
    assert reasons(session) == []


def test_another_models_is_stale(shard_set: Path, image: Path, tmp_path: Path) -> None:
    bf16 = shards.split_into(tmp_path / "source", tmp_path / "bf16", "bf16")
    assert reasons(opened(bf16, image)) == ["stale: made with another dtype, shards"]
    assert reasons(opened(shard_set, image)) == []
    qwen = shards.make(tmp_path / "qwen", "qwen2")
    assert reasons(opened(qwen, image)) == ["stale: made with another model, shards"]


def test_an_absent_one_is_ignored(shard_set: Path, tmp_path: Path) -> None:
    session = opened(shard_set, tmp_path / "absent")
    assert reasons(session) == [f"cannot be opened: [Errno 2] No such file or directory: '{tmp_path}/absent'"]


# --- what it is made of ---


def test_of_a_chat_it_holds_what_comes_before_the_users_words(tmp_path: Path) -> None:
    shard_set, path = shards.make_chat(tmp_path), tmp_path / "image"
    question = {"role": "user", "content": "Why?"}
    systems = make_image(path, config(shard_set), {"messages": [SYSTEM]})
    assert make_image(path, config(shard_set), {"messages": [SYSTEM, question]}).n_tokens == systems.n_tokens
    body = json.dumps({"messages": [SYSTEM, question]})
    event = http_event(body, path="/v1/chat/completions")
    assert make_image(path, config(shard_set), event).n_tokens == systems.n_tokens

    session = opened(shard_set, path)
    for text in ("How?", "\nhow\n", "1"):
        completion = session.generate(Generation(2, messages=[SYSTEM, {"role": "user", "content": text}]))
        next(completion)
        completion.close()
        n_cached = completion.usage()["prompt_tokens_details"]["cached_tokens"]
        assert systems.n_tokens - 2 <= n_cached <= completion.n_prompt_tokens - 1


def test_of_several_prompts_it_holds_what_they_share(shard_set: Path, tmp_path: Path) -> None:
    def made(prompts: list[list[int]]) -> int:
        event = http_event(json.dumps({"prompt": prompts}), path="/v1/completions")
        return make_image(tmp_path / "image", config(shard_set), event).n_tokens

    assert made([[5, 6, 7], [5, 6, 8]]) == 2
    with pytest.raises(FieldError, match="prompts that begin alike"):
        made([[5, 6, 7], [6, 7]])


def test_an_event_that_computes_nothing_makes_none(shard_set: Path, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="/healthz computes nothing"):
        make_image(tmp_path / "image", config(shard_set), http_event("", path="/healthz"))
    assert not (tmp_path / "image").exists()
