# SPDX-License-Identifier: Apache-2.0
"""What was said weighs on what comes next: three penalties on the scores of tokens that came before.

repetition (arXiv:1909.05858, section 4.1): tokens of prompt and answer; a positive score is divided by it, a
negative one multiplied. presence and frequency (OpenAI): tokens of the answer; one subtracted once, the other
each time that the token came.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from quickthaw.layers.arrays import Scores


class Penalties:
    """The penalties of one answer so far."""

    def __init__(
        self, repetition: float, presence: float, frequency: float, prompt_ids: Sequence[int]
    ) -> None:
        self._repetition = repetition
        self._presence = presence
        self._frequency = frequency
        self._seen = set(prompt_ids)
        self._counts: dict[int, int] = {}  # of the answer's tokens

    def add(self, token_id: int) -> None:
        """The answer goes on with this token."""
        self._seen.add(token_id)
        self._counts[token_id] = self._counts.get(token_id, 0) + 1

    def apply(self, scores: Scores) -> None:
        """Lower the scores of what came before, in place.

        Shapes: `scores` (vocab,) f64.
        """
        if self._repetition != 1:
            seen = np.fromiter(self._seen, np.intp)
            before = scores[seen]
            scores[seen] = np.where(before < 0, before * self._repetition, before / self._repetition)
        said = np.fromiter(self._counts, np.intp)
        times = np.fromiter(self._counts.values(), np.float64)
        scores[said] -= self._frequency * times + self._presence
