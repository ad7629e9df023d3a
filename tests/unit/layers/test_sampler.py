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
from quickthaw.layers.sampler import RandomNumbers, Sampler

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
    got = Sampler(temperature, top_k, top_p).probabilities(logits)
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
    assert Sampler().sample(logits) == logits.tolist().index(max(logits))


@given(logits_strategy, st.integers(-(2**70), 2**70))
def test_top_k_1_and_a_tiny_temperature_are_greedy_up_to_ties(
    logits: npt.NDArray[np.float32], seed: int
) -> None:
    for sampler in (
        Sampler(1.5, top_k=1, seed=seed),
        Sampler(1e-300, seed=seed),
        Sampler(1.0, top_p=1e-12, seed=seed),
    ):
        assert logits[sampler.sample(logits)] == logits.max()


def test_a_seed_fixes_the_tokens() -> None:
    logits = np.linspace(-2, 2, 1000, dtype=np.float32)

    def tokens(seed: int | None) -> list[int]:
        sampler = Sampler(1.0, top_k=900, top_p=0.95, seed=seed)
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
    sampler = Sampler(1.0, seed=1)
    counts = np.bincount([sampler.sample(logits) for _ in range(8000)], minlength=4)
    np.testing.assert_allclose(counts / 8000, [0.5, 0.25, 0.125, 0.125], atol=0.02)  # more than 3 sigma


def test_a_removed_token_is_never_drawn() -> None:
    logits = np.array([-np.inf, 1.0, -np.inf, 1.0, -np.inf], dtype=np.float32)
    sampler = Sampler(1.0, seed=3)
    assert {sampler.sample(logits) for _ in range(200)} == {1, 3}


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_are_no_numbers_are_refused(bad: float, temperature: float) -> None:
    with pytest.raises(LogitsError, match="no usable logits"):
        Sampler(temperature).sample(np.array([0, bad, 1], np.float32))


def test_sampling_imports_no_random_module() -> None:
    script = (
        "import sys, numpy\nfrom quickthaw.layers.sampler import Sampler\n"
        "Sampler(1.0, top_k=2, top_p=0.5).sample(numpy.zeros(4, numpy.float32))\n"
        "assert not {'random', 'numpy.random'} & sys.modules.keys()\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
