# SPDX-License-Identifier: Apache-2.0
import subprocess
import sys

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from quickthaw.layers.errors import LogitsError
from quickthaw.layers.sampler import RandomNumbers, Sampler, Sampling

logits_strategy = arrays(np.float32, st.integers(1, 40), elements=st.floats(-30, 30, width=16))


def reference(
    logits: npt.NDArray[np.float32], temperature: float, top_k: int | None, top_p: float | None
) -> dict[int, float]:
    """The same distribution, told as a story about a sorted list."""
    scores = {i: float(x) / temperature for i, x in enumerate(logits)}
    if top_k is not None:
        worst = sorted(scores.values(), reverse=True)[:top_k][-1]
        scores = {i: s for i, s in scores.items() if s >= worst}
    top = max(scores.values())
    weights = {i: np.exp(s - top) for i, s in scores.items()}
    total = sum(weights.values())
    if top_p is not None:
        held, floor = 0.0, 0.0
        for weight in sorted(weights.values(), reverse=True):
            floor = weight
            held += weight / total
            if held >= top_p:
                break
        weights = {i: w for i, w in weights.items() if w >= floor}
        total = sum(weights.values())
    return {i: w / total for i, w in weights.items()}


@given(logits_strategy, st.floats(0.05, 2), st.none() | st.integers(1, 50), st.none() | st.floats(0.01, 0.99))
def test_probabilities_follow_temperature_then_top_k_then_top_p(
    logits: npt.NDArray[np.float32], temperature: float, top_k: int | None, top_p: float | None
) -> None:
    got = Sampler(Sampling(temperature, top_k, top_p)).probabilities(logits)
    assert got.sum() == pytest.approx(1)
    expected = reference(logits, temperature, top_k, top_p)
    if {i for i, p in enumerate(got) if p > 0} != {i for i, p in expected.items() if p > 0}:
        # Summed from the other end, the same numbers may fall on the other side of top_p.
        assert top_p is not None
        nudged = [reference(logits, temperature, top_k, top_p + d) for d in (-1e-9, 1e-9)]
        expected = next(n for n in nudged if set(n) == set(np.flatnonzero(got)))
    np.testing.assert_allclose(got, [expected.get(i, 0.0) for i in range(len(got))], rtol=1e-9, atol=1e-300)


@given(logits_strategy)
def test_greedy_takes_the_largest_and_of_ties_the_first(logits: npt.NDArray[np.float32]) -> None:
    assert Sampler(Sampling()).sample(logits) == logits.tolist().index(max(logits))


@given(logits_strategy, st.integers(-(2**70), 2**70))
def test_top_k_1_and_a_tiny_temperature_are_greedy_up_to_ties(
    logits: npt.NDArray[np.float32], seed: int
) -> None:
    for sampler in (
        Sampler(Sampling(1.5, top_k=1, seed=seed)),
        Sampler(Sampling(1e-300, seed=seed)),
        Sampler(Sampling(1.0, top_p=1e-12, seed=seed)),
    ):
        assert logits[sampler.sample(logits)] == logits.max()


def test_a_seed_fixes_the_tokens() -> None:
    logits = np.linspace(-2, 2, 1000, dtype=np.float32)

    def tokens(seed: int | None) -> list[int]:
        sampler = Sampler(Sampling(1.0, top_k=900, top_p=0.95, seed=seed))
        return [sampler.sample(logits) for _ in range(8)]

    assert tokens(42) == tokens(42) == [931, 625, 725, 767, 450, 967, 679, 949]  # the same on every machine
    assert tokens(43) != tokens(42)
    assert tokens(None) != tokens(None)


def test_the_random_numbers_are_splitmix64() -> None:
    # First outputs for seed 1234567, as listed with many implementations of the algorithm.
    outputs = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    numbers = RandomNumbers(1234567)
    assert [numbers.next_uniform() for _ in outputs] == [(n >> 11) / 2**53 for n in outputs]


def test_draws_follow_the_probabilities() -> None:
    logits = np.log(np.array([0.5, 0.25, 0.125, 0.125], dtype=np.float32))
    sampler = Sampler(Sampling(1.0, seed=1))
    counts = np.bincount([sampler.sample(logits) for _ in range(8000)], minlength=4)
    np.testing.assert_allclose(counts / 8000, [0.5, 0.25, 0.125, 0.125], atol=0.02)  # more than 3 sigma


def test_a_removed_token_is_never_drawn() -> None:
    logits = np.array([-np.inf, 1.0, -np.inf, 1.0, -np.inf], dtype=np.float32)
    sampler = Sampler(Sampling(1.0, seed=3))
    assert {sampler.sample(logits) for _ in range(200)} == {1, 3}


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_are_no_numbers_are_refused(bad: float, temperature: float) -> None:
    with pytest.raises(LogitsError, match="no usable logits"):
        Sampler(Sampling(temperature)).sample(np.array([0, bad, 1], np.float32))


def test_sampling_imports_no_random_module() -> None:
    script = (
        "import sys, numpy\nfrom quickthaw.layers.sampler import Sampler, Sampling\n"
        "Sampler(Sampling(1.0, top_k=2, top_p=0.5)).sample(numpy.zeros(4, numpy.float32))\n"
        "assert not {'random', 'numpy.random'} & sys.modules.keys()\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


# --- what else changes a choice ---

LOGITS = np.array([1.0, 2.0, 3.0, -1.0], np.float32)


def scores(sampling: Sampling, prompt_ids: list[int], said: list[int]) -> list[float]:
    """Log probabilities at temperature 1, against the first token's."""
    sampler = Sampler(sampling._replace(temperature=1.0, top_k=1), prompt_ids)
    for token_id in said:
        forced = np.full(4, -1e9, np.float32)
        forced[token_id] = 1e9
        assert sampler.sample(forced) == token_id
    sampler._sampling = sampling._replace(temperature=1.0)
    found = np.log(sampler.probabilities(LOGITS))
    return [float(round(value, 6)) for value in found - found[0] + 1.0]


def test_a_repetition_penalty_divides_what_is_positive_and_multiplies_what_is_negative() -> None:
    assert scores(Sampling(repetition_penalty=2.0), [1, 3], [2]) == [1.0, 1.0, 1.5, -2.0]


def test_presence_counts_once_and_frequency_each_time_and_neither_the_prompt() -> None:
    assert scores(Sampling(presence_penalty=0.5), [1, 1], [2, 2, 3]) == [1.0, 2.0, 2.5, -1.5]
    assert scores(Sampling(frequency_penalty=0.5), [1, 1], [2, 2, 3]) == [1.0, 2.0, 2.0, -1.5]
    assert scores(Sampling(presence_penalty=-1, frequency_penalty=-1), [], [2, 2]) == [1.0, 2.0, 6.0, -1.0]


def test_a_bias_is_added_before_the_penalties() -> None:
    assert scores(Sampling(logit_bias=((3, 5.0), (1, -2.0))), [], []) == [1.0, 0.0, 3.0, 4.0]
    assert scores(Sampling(logit_bias=((3, 5.0),), repetition_penalty=2.0), [3], []) == [1.0, 2.0, 3.0, 2.0]


def test_min_p_removes_what_is_unlikely_beside_the_likeliest() -> None:
    logits = np.log(np.array([0.6, 0.3, 0.06, 0.04], np.float32))
    found = Sampler(Sampling(1.0, min_p=0.101)).probabilities(logits)
    np.testing.assert_allclose(found, [2 / 3, 1 / 3, 0, 0], rtol=1e-6)
    np.testing.assert_allclose(Sampler(Sampling(1.0, min_p=0.0)).probabilities(logits).min(), 0.04, rtol=1e-6)


def test_greedy_follows_bias_and_penalties() -> None:
    assert Sampler(Sampling()).sample(LOGITS) == 2
    assert Sampler(Sampling(logit_bias=((2, -100.0),))).sample(LOGITS) == 1
    sampler = Sampler(Sampling(frequency_penalty=0.75))
    assert [sampler.sample(LOGITS) for _ in range(5)] == [2, 2, 1, 2, 1]


def test_each_choice_draws_numbers_of_its_own() -> None:
    logits = np.zeros(1000, np.float32)

    def tokens(choice: int) -> list[int]:
        sampler = Sampler(Sampling(1.0, seed=7), choice=choice)
        return [sampler.sample(logits) for _ in range(8)]

    assert tokens(0) == [Sampler(Sampling(1.0, seed=7)).sample(logits), *tokens(0)[1:]]
    assert tokens(3) == tokens(3)
    assert len({token for choice in range(4) for token in tokens(choice)}) > 24  # no two share a sequence


def test_a_stream_is_not_another_one_shifted() -> None:
    first, second = RandomNumbers(5), RandomNumbers(5, 1)
    assert not {first.next_uniform() for _ in range(50)} & {second.next_uniform() for _ in range(50)}
