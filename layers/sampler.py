# SPDX-License-Identifier: Apache-2.0
"""Chooses the next token from logits: greedy, or drawn after temperature, top-k and top-p, in that order.

One seed gives one text on every machine and engine: the random numbers are SplitMix64's, in Python integers
(numpy.random would cost 30 ms to import, the standard library's random 2), the probabilities are f64, and
tokens keep the order of their ids, so two nearly equal logits that swap places move no other token's share.
"""

from __future__ import annotations

import os

import numpy as np
import numpy.typing as npt

from quickthaw.layers.errors import LogitsError

Logits = npt.NDArray[np.float32]

_ADVICE = "verify the shard set with `quickthaw inspect --verify`"
_MASK = (1 << 64) - 1


class RandomNumbers:
    """SplitMix64: uniform numbers in [0, 1) from one 64-bit integer of state.

    Source: Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014, figure 17.
    """

    def __init__(self, seed: int | None = None) -> None:
        # Drawn when a request needs it, never at import: clones of a snapshot must differ.
        self._state = int.from_bytes(os.urandom(8)) if seed is None else seed & _MASK

    def next_uniform(self) -> float:
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        mixed = self._state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        return float(((mixed ^ (mixed >> 31)) >> 11) * 2.0**-53)  # 53 bits: every f64 in [0, 1) of that grid


class Sampler:
    """Draws the tokens of one answer."""

    def __init__(
        self,
        temperature: float = 0.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int | None = None,
    ) -> None:
        """`temperature` 0 is greedy; `top_k` >= 1; `top_p` in (0, 1]; None switches a filter off."""
        self._temperature = temperature
        self._top_k = top_k
        self._top_p = top_p
        self._random = RandomNumbers(seed) if temperature > 0 else None

    def sample(self, logits: Logits) -> int:
        """The next token's id; of equal largest logits greedy takes the lowest id.

        Shapes: `logits` (vocab,) f32.
        Raises: `LogitsError` when the largest is no finite number; -inf elsewhere is a token that cannot be.
        """
        if not np.isfinite(logits.max()):
            raise LogitsError("the engine computed no usable logits", found=logits.max(), advice=_ADVICE)
        if self._random is None:
            return int(logits.argmax())
        probabilities = self.probabilities(logits)
        shares = probabilities.cumsum()
        position = self._random.next_uniform() * shares[-1]
        return int(shares.searchsorted(position, side="right"))

    def probabilities(self, logits: Logits) -> npt.NDArray[np.float64]:
        """Shapes: (vocab,) f32 → (vocab,) f64, 0 where a filter removed the token; the sum is 1."""
        with np.errstate(
            over="ignore", under="ignore"
        ):  # a tiny temperature sends all but the largest to -inf
            scores = (logits.astype(np.float64) - logits.max()) / self._temperature
        if self._top_k is not None and self._top_k < len(scores):
            scores[scores < np.partition(scores, -self._top_k)[-self._top_k]] = -np.inf
        probabilities = _softmax(scores)
        if self._top_p is not None and self._top_p < 1.0:
            probabilities[probabilities < _nucleus_floor(probabilities, self._top_p)] = 0.0
            probabilities /= probabilities.sum()
        return probabilities


def _softmax(scores: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    exponentials = np.exp(scores)  # the largest score is 0
    probabilities: npt.NDArray[np.float64] = exponentials / exponentials.sum()
    return probabilities


def _nucleus_floor(probabilities: npt.NDArray[np.float64], top_p: float) -> float:
    """The least probability in the smallest set of likeliest tokens that holds `top_p`; its ties stay too."""
    ascending = np.sort(probabilities)
    first_kept = int(np.searchsorted(ascending.cumsum(), 1.0 - top_p, side="right"))
    return float(ascending[min(first_kept, len(ascending) - 1)])
