# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from quickthaw.layers.penalties import Penalties


def apply(penalties: Penalties, *scores: float) -> list[float]:
    array = np.array(scores, np.float64)
    penalties.apply(array)
    return [float(score) for score in array]


def test_nothing_said_changes_nothing() -> None:
    assert apply(Penalties(2.0, 1.0, 1.0, ()), 1, -1) == [1, -1]


def test_a_token_that_cannot_be_stays_so() -> None:
    penalties = Penalties(2.0, 1.0, 1.0, (0,))
    penalties.add(0)
    assert apply(penalties, -np.inf, 3) == [-np.inf, 3]


def test_repetition_comes_before_the_other_two() -> None:
    penalties = Penalties(2.0, 0.5, 0.25, ())
    penalties.add(0)
    penalties.add(0)
    assert apply(penalties, 4.0, 4.0) == pytest.approx([4.0 / 2 - 2 * 0.25 - 0.5, 4.0])
