# SPDX-License-Identifier: Apache-2.0
"""Requests come, go and give up while others are computed, and every answer is its own."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from quickthaw.layers.arrays import Array
from quickthaw.layers.batch import Batch, BatchLimits, Caller, Seat, share_out
from quickthaw.layers.errors import AbandonedError, BatchClosedError, BatchFullError
from quickthaw.layers.interpreter import Interpreter
from quickthaw.layers.kv import KeyValueCache, Turn
from quickthaw.layers.shard_set import ShardSet
from tests import greedy, models, shards

MODEL = models.model_config(models.config("llama"))
N_VOCAB = 50


class Counting:
    """Each sequence's logits point at the sum of its tokens; steps wait while `gate` is closed."""

    name = "counting"

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.has_begun = threading.Event()
        self.steps: list[list[int]] = []  # of each, how many tokens each sequence had in it
        self.error: Exception | None = None

    def step(self, turns: Sequence[Turn]) -> Array:
        self.has_begun.set()
        assert self.gate.wait(30)
        self.steps.append([len(token_ids) for token_ids, _ in turns])
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        logits = np.zeros((len(turns), N_VOCAB), np.float32)
        for row, (token_ids, cache) in zip(logits, turns, strict=True):
            cache.take(token_ids)
            row[sum(cache.token_ids) % N_VOCAB] = 1
        return logits


@pytest.fixture
def engine() -> Counting:
    return Counting()


def answer(seat: Seat, prompt: Sequence[int], n_tokens: int) -> list[int]:
    cache, said = KeyValueCache(MODEL), [*prompt]
    for _ in range(n_tokens):
        said.append(int(seat.forward(said[cache.n_tokens :], cache).argmax()))
    return said[len(prompt) :]


def expected(prompt: Sequence[int], n_tokens: int) -> list[int]:
    said = [*prompt]
    for _ in range(n_tokens):
        said.append(sum(said) % N_VOCAB)
    return said[len(prompt) :]


def wait_until(is_so: Callable[[], bool]) -> None:
    end_s = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < end_s
        time.sleep(0.001)


def test_many_at_once_share_their_steps(engine: Counting) -> None:
    def answer_and_leave(seat: Seat, prompt: Sequence[int]) -> list[int]:
        said = answer(seat, prompt, 20)
        seat.leave()  # or the others would wait for it
        return said

    with Batch(engine, BatchLimits(max_wait_s=30)) as batch, ThreadPoolExecutor(8) as threads:
        seats = [batch.join(Caller()) for _ in range(8)]
        engine.gate.clear()
        answers = [threads.submit(answer_and_leave, seat, [n]) for n, seat in enumerate(seats)]
        wait_until(lambda: sum(seat.is_asking for seat in seats) >= 7)
        engine.gate.set()
        assert [found.result(30) for found in answers] == [expected([n], 20) for n in range(8)]
    assert len(engine.steps) <= 22


def test_a_step_waits_for_no_one_who_reads_slowly(engine: Counting) -> None:
    with Batch(engine, BatchLimits(max_wait_s=0.001)) as batch:
        slow, fast = batch.join(Caller()), batch.join(Caller())
        slow.forward([1], KeyValueCache(MODEL))
        assert answer(fast, [2], 50) == expected([2], 50)


def test_who_leaves_gives_the_place_to_the_most_urgent_who_waits(engine: Counting) -> None:
    order: list[int] = []

    def wait(priority: int) -> None:
        seat = batch.join(Caller(priority))
        order.append(priority)
        seat.leave()

    with Batch(engine, BatchLimits(max_batch=1)) as batch, ThreadPoolExecutor(3) as threads:
        first = batch.join(Caller())
        for n_waiting, priority in enumerate((5, -1, 0), start=1):
            threads.submit(wait, priority)
            wait_until(lambda n=n_waiting: batch.n_waiting == n)  # type: ignore[misc]
        first.leave()
        wait_until(lambda: len(order) == 3)
    assert order == [-1, 0, 5]


def test_when_too_many_wait_the_next_is_refused(engine: Counting) -> None:
    with Batch(engine, BatchLimits(max_batch=1, max_waiting=0)) as batch:
        seat = batch.join(Caller())
        with pytest.raises(BatchFullError, match="too many requests wait already"):
            batch.join(Caller())
        seat.leave()
        batch.join(Caller())


def test_who_waits_too_long_for_a_place_is_refused_and_waits_no_more(engine: Counting) -> None:
    with Batch(engine, BatchLimits(max_batch=1)) as batch:
        seat = batch.join(Caller())
        with pytest.raises(BatchFullError, match="in time"):
            batch.join(Caller(), timeout_s=0.01)
        assert (batch.n_seated, batch.n_waiting) == (1, 0)
        seat.leave()


def test_an_answer_that_nobody_waits_for_is_given_up_within_its_prompt(engine: Counting) -> None:
    is_wanted = True
    with Batch(engine, BatchLimits()) as batch, ThreadPoolExecutor(1) as threads:
        seat, cache = batch.join(Caller(is_wanted=lambda: is_wanted)), KeyValueCache(MODEL)
        cache.reserve(1)
        cache.take([7])
        engine.gate.clear()
        asked = threads.submit(seat.forward, [1] * 10_000, cache)
        assert engine.has_begun.wait(30)
        is_wanted = False
        engine.gate.set()
        with pytest.raises(AbandonedError):
            asked.result(30)
    assert len(engine.steps) == 1
    assert cache.token_ids == [7]


def test_who_is_gone_while_waiting_is_never_seated(engine: Counting) -> None:
    is_wanted = True
    with Batch(engine, BatchLimits(max_batch=1)) as batch, ThreadPoolExecutor(1) as threads:
        seat = batch.join(Caller())
        waiting = threads.submit(batch.join, Caller(is_wanted=lambda: is_wanted))
        wait_until(lambda: batch.n_waiting == 1)
        is_wanted = False
        answer(seat, [1], 1)
        with pytest.raises(AbandonedError):
            waiting.result(30)
        assert (batch.n_seated, batch.n_waiting) == (1, 0)


def test_what_is_raised_before_a_step_ends_that_answer_alone(engine: Counting) -> None:
    def too_late() -> None:
        raise TimeoutError("no time")

    with Batch(engine, BatchLimits()) as batch:
        late, other = batch.join(Caller()), batch.join(Caller())
        late.before_layer = too_late
        with pytest.raises(TimeoutError):
            late.forward([1], KeyValueCache(MODEL))
        assert answer(other, [2], 3) == expected([2], 3)


def test_what_a_step_raises_reaches_those_in_it_and_the_next_step_is_fine(engine: Counting) -> None:
    with Batch(engine, BatchLimits()) as batch:
        seat, cache = batch.join(Caller()), KeyValueCache(MODEL)
        engine.error = OSError("no such shard")
        with pytest.raises(OSError, match="no such shard"):
            seat.forward([1, 2, 3], cache)
        assert cache.n_tokens == 0
        assert answer(seat, [3], 3) == expected([3], 3)


def test_the_end_of_a_batch_is_told_to_everybody(engine: Counting) -> None:
    engine.gate.clear()
    with ThreadPoolExecutor(3) as threads, Batch(engine, BatchLimits(max_batch=1)) as batch:
        computed = threads.submit(batch.join(Caller()).forward, [1] * 1000, KeyValueCache(MODEL))
        waiting = threads.submit(batch.join, Caller())
        wait_until(lambda: batch.n_waiting == 1)
        threads.submit(batch.__exit__)
        for asked in (computed, waiting):
            with pytest.raises(BatchClosedError):
                asked.result(30)
        engine.gate.set()
    with pytest.raises(BatchClosedError):
        batch.join(Caller())


# --- who gets how much of a step ---


def test_an_answers_next_token_waits_for_no_prompt() -> None:
    assert share_out([(0, 1), (0, 1000), (9, 1)]) == [1, 64, 1]


def test_prompts_share_a_step_evenly_and_a_short_one_takes_what_it_needs() -> None:
    assert share_out([(0, 1), (0, 1000), (0, 10)]) == [1, 32, 10]
    assert share_out([(0, 1000), (0, 1000)]) == [128, 128]


def test_the_most_urgent_prompts_go_first() -> None:
    assert share_out([(1, 1000), (0, 1000), (1, 1)]) == [0, 64, 1]


def test_every_prompt_gets_on_however_many_there_are() -> None:
    assert share_out([(0, 1000)] * 500) == [1] * 500


# --- every answer is its own ---


class Ask(NamedTuple):
    """A request: the lengths of its prompt and answer, when it comes, after how many tokens it is dropped."""

    n_prompt: int
    n_tokens: int
    delay_ms: int
    n_wanted: int | None


ASKS = st.builds(
    Ask,
    st.sampled_from([1, 2, 5, 20, 150]),
    st.integers(1, 12),
    st.integers(0, 20),
    st.none() | st.integers(0, 6),
)


@pytest.fixture(scope="module")
def interpreter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Interpreter]:
    directory = tmp_path_factory.mktemp("batch")
    opened = ShardSet.open(shards.make(directory), shards.config(directory))
    yield Interpreter(opened, n_threads=2)
    opened.close()


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(asks=st.lists(ASKS, min_size=2, max_size=10))
def test_whatever_comes_and_goes_every_answer_is_what_it_is_alone(
    interpreter: Interpreter, asks: list[Ask]
) -> None:
    def ask(number: int) -> list[int] | None:
        wanted = asks[number]
        time.sleep(wanted.delay_ms / 1000)
        said: list[int] = []
        is_wanted = lambda: wanted.n_wanted is None or len(said) < wanted.n_wanted  # noqa: E731
        try:
            seat = batch.join(Caller(number % 2, is_wanted))
        except AbandonedError:
            return None
        cache, token_ids = KeyValueCache(MODEL), prompt(number, wanted.n_prompt)
        try:
            for _ in range(wanted.n_tokens):
                token_ids = [int(seat.forward(token_ids, cache).argmax())]
                said += token_ids
        except AbandonedError:
            return None
        finally:
            seat.leave()
        return said

    limits = BatchLimits(max_batch=4, max_wait_s=0.002)
    with Batch(interpreter, limits) as batch, ThreadPoolExecutor(len(asks)) as threads:
        answers = list(threads.map(ask, range(len(asks))))
        assert (batch.n_seated, batch.n_waiting) == (0, 0)
    for number, (wanted, said) in enumerate(zip(asks, answers, strict=True)):
        if said is None:
            assert wanted.n_wanted is not None
        else:
            assert_said(interpreter, prompt(number, wanted.n_prompt), said)


def prompt(number: int, n_tokens: int) -> list[int]:
    found: list[int] = np.random.default_rng(number).integers(0, 199, n_tokens).tolist()
    return found


def assert_said(interpreter: Interpreter, token_ids: list[int], said: list[int]) -> None:
    """The same tokens one by one, unless the best two are a tie."""
    cache = KeyValueCache(MODEL)
    for token_id in said:
        logits = interpreter.forward(token_ids, cache)
        if int(logits.argmax()) != token_id:
            best, second = np.sort(logits)[[-1, -2]]
            assert best - second < greedy.TIE_GAP
            return
        token_ids = [token_id]
