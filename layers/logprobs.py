# SPDX-License-Identifier: Apache-2.0
"""How likely the model itself found a token: log-softmax of its raw logits, in f64.

Raw, as OpenAI's are: neither bias nor penalties, temperature nor filters have touched them, so they say what
the model knows and not how it was sampled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from quickthaw.layers.arrays import Logits

# What OpenAI writes for a token that cannot be: JSON has no -Infinity.
FLOOR = -9999.0


class Logprobs(NamedTuple):
    """One token's natural log probability, and the likeliest tokens at its place, likeliest first."""

    token_id: int
    logprob: float | None  # None: the first token of a prompt, which follows nothing
    top: tuple[tuple[int, float], ...] = ()


def logprobs(logits: Logits, token_id: int, n_top: int) -> Logprobs:
    """Of equal likely tokens the one with the lower id comes first.

    Shapes: `logits` (vocab,) f32.
    """
    largest = float(logits.max())
    log_total = largest + float(np.log(np.exp(logits.astype(np.float64) - largest).sum()))

    def logprob(index: int) -> float:
        return max(float(logits[index]) - log_total, FLOOR)

    top = tuple([(index, logprob(index)) for index in _largest(logits, n_top)])
    return Logprobs(token_id, logprob(token_id), top)


def _largest(logits: Logits, n: int) -> list[int]:
    n = min(n, len(logits))
    if n == 0:
        return []
    candidates = np.flatnonzero(logits >= np.partition(logits, -n)[-n])
    order = np.argsort(-logits[candidates], kind="stable")[:n]
    return [int(index) for index in candidates[order]]
