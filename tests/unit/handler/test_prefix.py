# SPDX-License-Identifier: Apache-2.0
"""What is known of a prompt: which of its tokens the engine is asked for, and that answers do not show it."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quickthaw.handler.config import HandlerConfig
from quickthaw.handler.function import Function
from quickthaw.handler.generation import Generation, Piece
from quickthaw.handler.prefix import KnownPrefix
from quickthaw.handler.session import Session
from quickthaw.handler.timeline import Timeline
from quickthaw.layers.errors import ShardMissingError
from quickthaw.layers.kv import KeyValueCache
from quickthaw.layers.sampler import Sampling
from tests import models, shards
from tests.greedy import TIE_GAP
from tests.unit.handler.fakes import EOS, MODEL, session
from tests.unit.handler.test_function import Context


def ask(fake: Session, prompt: Sequence[int], **fields: Any) -> int:
    """Tokens of the prompt that were not computed."""
    completion = fake.generate(Generation(**{"max_tokens": 1, "prompts": [prompt], **fields}))
    list(completion)
    cached: int = completion.usage()["prompt_tokens_details"]["cached_tokens"]
    fake.forget()
    return cached


def test_a_prompt_that_goes_on_is_computed_from_there() -> None:
    fake, engine = session([65, 66, EOS, 67])
    assert ask(fake, [1, 2, 3], max_tokens=9) == 0
    assert ask(fake, [1, 2, 3, 65, 66, 7]) == 5
    assert engine.calls == [[1, 2, 3], [65], [66], [7]]


def test_the_last_token_of_a_prompt_is_always_computed() -> None:
    fake, engine = session([65, 66])
    assert [ask(fake, [1, 2, 3]), ask(fake, [1, 2, 3])] == [0, 2]
    assert engine.calls == [[1, 2, 3], [3]]


def test_another_prompt_is_computed_from_where_it_differs() -> None:
    fake, engine = session([65, 66, 67])
    assert [ask(fake, [1, 2, 3]), ask(fake, [1, 9, 3]), ask(fake, [8])] == [0, 1, 0]
    assert engine.calls == [[1, 2, 3], [9, 3], [8]]


def test_the_prompts_of_a_request_share_what_they_begin_with() -> None:
    fake, engine = session([65, 66])
    assert ask(fake, [], prompts=[[1, 2, 3], [1, 2, 4]]) == 2
    assert engine.calls == [[1, 2, 3], [4]]


def test_choices_do_not_see_each_other() -> None:
    fake, engine = session([65, EOS, 66, EOS, 67])
    ask(fake, [1, 2], n_choices=2, max_tokens=5)
    assert engine.calls == [[1, 2], [65], [65], [66]]
    assert ask(fake, [1, 2, 65, 66, 3]) == 4  # the last choice is what is held


def test_a_prompt_that_is_scored_is_computed_whole() -> None:
    fake, engine = session([65] * 9)
    ask(fake, [1, 2, 3])
    assert ask(fake, [1, 2, 3], is_echoed=True, n_top_logprobs=0) == 0
    assert engine.calls == [[1, 2, 3], [1], [2], [3]]
    assert ask(fake, [1, 2, 3], is_echoed=True) == 2


def test_what_a_broken_off_answer_computed_is_known() -> None:
    fake, engine = session([65, 66, 67])
    completion = fake.generate(Generation(9, [[1, 2]]))
    next(completion), next(completion)
    completion.close()
    assert ask(fake, [1, 2, 65, 66, 5]) == 3  # 66 was said, but not yet computed with
    assert engine.calls[-1] == [66, 5]


def test_what_a_failed_answer_did_not_compute_is_not_known() -> None:
    fake, engine = session([65, ShardMissingError("gone"), 66])
    with pytest.raises(ShardMissingError):
        ask(fake, [1, 2], max_tokens=9)
    assert ask(fake, [1, 2, 65, 3]) == 2
    assert engine.calls[-1] == [65, 3]


def test_what_a_deadline_gave_up_is_not_known() -> None:
    fake, _ = session([65, 66])
    ask(fake, [1, 2, 3], deadline_ns=0)
    assert ask(fake, [1, 2, 3]) == 0


def test_as_much_is_kept_as_is_configured() -> None:
    fake, engine = session([65, 66], environ={"QUICKTHAW_KEPT_TOKENS": "2"})
    ask(fake, [1, 2, 3, 4])
    assert ask(fake, [1, 2, 3, 4]) == 2
    fake, engine = session([65, 66], environ={"QUICKTHAW_KEPT_TOKENS": "0"})
    ask(fake, [1, 2, 3, 4])
    assert ask(fake, [1, 2, 3, 4]) == 0
    assert (engine.calls, fake.kv_bytes) == ([[1, 2, 3, 4]] * 2, 0)


def test_the_function_keeps_no_more_either() -> None:
    for environ, expected in (({}, 2), ({"QUICKTHAW_KEPT_TOKENS": "0"}, 0)):
        function = Function(session([65] * 9, environ=environ)[0], Timeline())
        answers = [function.answer({"prompt": [1, 2, 3], "max_tokens": 2}, Context()) for _ in range(2)]
        assert answers[1]["usage"]["prompt_tokens_details"]["cached_tokens"] == expected


def test_room_of_a_longer_sequence_is_given_back_once_a_short_one_was_computed() -> None:
    prefix = KnownPrefix(MODEL)
    cache = prefix.begin([1] * 1000, is_known_used=True)
    cache.reserve(1000)
    cache.take([1] * 1000)
    prefix.keep(None)
    assert cache.capacity == 1024
    cache = prefix.begin([1] * 300, is_known_used=True)
    cache.take([1])
    prefix.keep(None)
    assert (cache.n_tokens, cache.capacity) == (300, 1024)
    cache = prefix.begin([1] * 10, is_known_used=True)
    cache.take([1])
    prefix.keep(None)
    assert (cache.n_tokens, cache.capacity) == (10, 64)


# --- a prefix that was saved ---


class Saved:
    def __init__(self, token_ids: list[int], *, is_damaged: bool = False) -> None:
        self.token_ids = token_ids
        self.is_damaged = is_damaged

    def n_shared(self, token_ids: Sequence[int]) -> int:
        held = KeyValueCache(MODEL)
        held.take(self.token_ids)
        return held.n_shared(token_ids)

    def load(self, n_tokens: int, cache: KeyValueCache) -> None:
        cache.rewind(0)
        cache.take([] if self.is_damaged else self.token_ids[:n_tokens])


def test_a_saved_prefix_is_used_where_it_is_longer_than_what_is_held() -> None:
    prefix = KnownPrefix(MODEL, Saved([1, 2, 3]))
    assert prefix.begin([1, 2, 3], is_known_used=True).token_ids == [1, 2]
    cache = prefix.begin([1, 2, 3, 4, 5], is_known_used=True)
    assert cache.token_ids == [1, 2, 3]
    cache.take([4])
    assert prefix.begin([1, 2, 3, 4, 5], is_known_used=True).token_ids == [1, 2, 3, 4]
    assert prefix.begin([9], is_known_used=True).token_ids == []
    assert prefix.begin([1, 2, 8], is_known_used=True).token_ids == [1, 2]
    assert prefix.begin([1, 2, 8], is_known_used=False).token_ids == []


def test_a_saved_prefix_that_is_damaged_is_none() -> None:
    prefix = KnownPrefix(MODEL, Saved([1, 2, 3], is_damaged=True))
    assert prefix.begin([1, 2, 3, 4], is_known_used=True).token_ids == []


# --- the real thing: answers are those of a session that knows nothing ---


@pytest.fixture(params=models.CONFIGS)
def shard_set(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shards.make(tmp_path_factory.mktemp(request.param), request.param)


def opened(shard_set: Path, **environ: str) -> Session:
    fixed = {"QUICKTHAW_SHARDS": str(shard_set), "QUICKTHAW_VERIFY": "never", "QUICKTHAW_THREADS": "1"}
    return Session.open(HandlerConfig.from_env({**fixed, **environ}))


def conversations(seed: int, room: int) -> Iterator[Generation]:
    """Prompts that go on, turn back, leave out and begin anew, in chunks, across windows."""
    random = np.random.default_rng(seed)

    def some(low: int, high: int) -> list[int]:
        return [int(each) for each in random.integers(3, 199, random.integers(low, high))]

    prompt = some(2, 30)
    for _ in range(12):
        prompt = prompt[: int(random.integers(1, len(prompt) + 1))] + some(1, 25)
        if random.random() < 0.15:
            prompt = some(100, 170)
        prompt = prompt[:room]
        n_choices, is_scored = int(random.integers(1, 3)), random.random() < 0.15
        seeded = Sampling(float(random.choice([0.0, 0.8])), seed=int(random.integers(100)))
        max_tokens = int(random.integers(1, 12))
        yield Generation(max_tokens, [prompt], None, seeded, n_choices, is_echoed=is_scored, n_top_logprobs=2)


def assert_same(found: list[Piece], fresh: list[Piece]) -> None:
    """Token for token, choice for choice; one that hardly decided may differ, and what follows it."""
    numbers = {piece.choice for piece in fresh}
    assert {piece.choice for piece in found} == numbers
    for number in numbers:
        pairs = zip(
            [piece for piece in found if piece.choice == number],
            [piece for piece in fresh if piece.choice == number],
            strict=True,
        )
        for ours, theirs in pairs:
            for our, their in zip(ours.logprobs, theirs.logprobs, strict=True):
                assert our.logprob == pytest.approx(their.logprob, abs=1e-3)
            if ours.token_id != theirs.token_id:
                assert theirs.logprobs[0].top[0][1] - theirs.logprobs[0].top[1][1] < TIE_GAP
                break


@pytest.mark.parametrize("seed", range(3))
def test_answers_are_those_of_a_session_that_knows_nothing(shard_set: Path, seed: int) -> None:
    knowing, n_cached = opened(shard_set), 0
    random = np.random.default_rng(seed)
    for request in conversations(seed, knowing.context_tokens - 12):
        completion = knowing.generate(request)
        n_taken = int(random.integers(1, 30))  # some answers are broken off
        found = [piece for _, piece in zip(range(n_taken), completion, strict=False)]
        completion.close()
        knowing.forget()
        n_cached += completion.usage()["prompt_tokens_details"]["cached_tokens"]
        fresh = list(opened(shard_set, QUICKTHAW_KEPT_TOKENS="0").generate(request))
        assert_same(found, fresh[: len(found)])
    assert n_cached > 0 or "dynamic" in str(shard_set)


def test_it_also_goes_on_where_memory_was_given_back(shard_set: Path) -> None:
    thrifty, n_cached = opened(shard_set, QUICKTHAW_KEPT_TOKENS="10"), 0
    for request in conversations(7, thrifty.context_tokens - 12):
        completion = thrifty.generate(request)
        found = list(completion)
        thrifty.forget()
        n_cached += completion.usage()["prompt_tokens_details"]["cached_tokens"]
        assert_same(found, list(opened(shard_set).generate(request)))
    assert n_cached > 0 or "dynamic" in str(shard_set)
