# SPDX-License-Identifier: Apache-2.0
"""Chooses the next token from logits: the likeliest, or drawn.

    logits → bias → penalties ─┬─ temperature 0 → the largest
                               └─ temperature → top-k → top-p → min-p → drawn

That is the order of transformers' `generate`. One seed gives one text on every machine and engine: the random
numbers are SplitMix64's, in Python integers (numpy.random would cost 30 ms to import, the standard library's
random 2), the probabilities are f64, and tokens keep the order of their ids, so two nearly equal logits that
swap places move no other token's share.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from quickthaw.layers.errors import LogitsError
from quickthaw.layers.penalties import Penalties

if TYPE_CHECKING:
    from quickthaw.layers.arrays import Logits, Scores

_ADVICE = "verify the shard set with `quickthaw inspect --verify`"
_MASK = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15


class RandomNumbers:
    """SplitMix64: uniform numbers in [0, 1) from one 64-bit integer of state.

    Source: Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014, figure 17.
    """

    def __init__(self, seed: int | None = None, stream: int = 0) -> None:
        """Streams of one seed are independent; stream 0 is the seed's own."""
        # Drawn when a request needs it, never at import: clones of a snapshot must differ.
        state = int.from_bytes(os.urandom(8)) if seed is None else seed & _MASK
        # Mixed: unmixed, stream 1 would be stream 0 but for its first number.
        self._state = _mixed(state + stream * _GAMMA) if stream else state

    def next_uniform(self) -> float:
        self._state = (self._state + _GAMMA) & _MASK
        return float((_mixed(self._state) >> 11) * 2.0**-53)  # 53 bits: every f64 in [0, 1) of that grid


def _mixed(state: int) -> int:
    state &= _MASK
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
    return state ^ (state >> 31)


class Sampling(NamedTuple):
    """How tokens are chosen. The defaults are greedy; a step at its default is left out."""

    temperature: float = 0.0  # 0 is greedy
    top_k: int | None = None  # from 1
    top_p: float | None = None  # in (0, 1]
    min_p: float | None = None  # in [0, 1]
    repetition_penalty: float = 1.0  # above 0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Sequence[tuple[int, float]] = ()  # token id → what is added to its logit; each id once
    seed: int | None = None


class Sampler:
    """Draws the tokens of one answer."""

    def __init__(self, sampling: Sampling, prompt_ids: Sequence[int] = (), *, choice: int = 0) -> None:
        """`choice` counts answers to one prompt: with a seed each draws numbers of its own."""
        self._sampling = sampling
        self._random = RandomNumbers(sampling.seed, choice) if sampling.temperature > 0 else None
        self._bias_ids = np.array([token_id for token_id, _ in sampling.logit_bias], np.intp)
        self._bias = np.array([bias for _, bias in sampling.logit_bias])
        penalties = sampling.repetition_penalty, sampling.presence_penalty, sampling.frequency_penalty
        self._penalties = Penalties(*penalties, prompt_ids) if penalties != (1, 0, 0) else None

    def sample(self, logits: Logits) -> int:
        """The next token's id; of equal largest logits greedy takes the lowest id.

        Shapes: `logits` (vocab,) f32.
        Raises: `LogitsError` when the largest is no finite number; -inf elsewhere is a token that cannot be.
        """
        if not np.isfinite(logits.max()):
            raise LogitsError("the engine computed no usable logits", found=logits.max(), advice=_ADVICE)
        token_id = self._greedy(logits) if self._random is None else self._drawn(logits, self._random)
        if self._penalties is not None:
            self._penalties.add(token_id)
        return token_id

    def _greedy(self, logits: Logits) -> int:
        is_plain = self._penalties is None and not self._bias.size
        return int((logits if is_plain else self._scores(logits)).argmax())

    def _drawn(self, logits: Logits, random: RandomNumbers) -> int:
        shares = self.probabilities(logits).cumsum()
        return int(shares.searchsorted(random.next_uniform() * shares[-1], side="right"))

    def probabilities(self, logits: Logits) -> Scores:
        """Shapes: (vocab,) f32 → (vocab,) f64, 0 where a filter removed the token; the sum is 1."""
        sampling, scores = self._sampling, self._scores(logits)
        # A tiny temperature sends all but the largest to -inf.
        with np.errstate(over="ignore", under="ignore"):
            scores = (scores - scores.max()) / sampling.temperature
        if sampling.top_k is not None and sampling.top_k < len(scores):
            scores[scores < np.partition(scores, -sampling.top_k)[-sampling.top_k]] = -np.inf
        probabilities = _softmax(scores)
        if sampling.top_p is not None and sampling.top_p < 1.0:
            probabilities[probabilities < _nucleus_floor(probabilities, sampling.top_p)] = 0.0
        if sampling.min_p is not None:
            probabilities[probabilities < sampling.min_p * probabilities.max()] = 0.0
        probabilities /= probabilities.sum()
        return probabilities

    def _scores(self, logits: Logits) -> Scores:
        """The logits with bias and penalties."""
        scores = logits.astype(np.float64)
        scores[self._bias_ids] += self._bias
        if self._penalties is not None:
            self._penalties.apply(scores)
        return scores


def _softmax(scores: Scores) -> Scores:
    exponentials = np.exp(scores)  # the largest score is 0
    probabilities: Scores = exponentials / exponentials.sum()
    return probabilities


def _nucleus_floor(probabilities: Scores, top_p: float) -> float:
    """The least probability in the smallest set of likeliest tokens that holds `top_p`; its ties stay too."""
    ascending = np.sort(probabilities)
    first_kept = int(np.searchsorted(ascending.cumsum(), 1.0 - top_p, side="right"))
    return float(ascending[min(first_kept, len(ascending) - 1)])
