# SPDX-License-Identifier: Apache-2.0
import math

import numpy as np
import pytest

from quickthaw.layers.logprobs import FLOOR, Logprobs, logprobs

LOGITS = np.log(np.array([0.25, 0.5, 0.125, 0.125], np.float32))


def rounded(found: Logprobs) -> Logprobs:
    assert found.logprob is not None
    return Logprobs(found.token_id, round(found.logprob, 6), tuple((i, round(p, 6)) for i, p in found.top))


@pytest.mark.parametrize("shift", [0.0, 80.0, -200.0])
def test_they_are_the_logs_of_the_probabilities(shift: float) -> None:
    found = logprobs(LOGITS + np.float32(shift), 2, 2)
    assert found.token_id == 2
    assert found.logprob == pytest.approx(math.log(0.125), abs=1e-4)
    assert [index for index, _ in found.top] == [1, 0]
    assert [value for _, value in found.top] == pytest.approx([math.log(0.5), math.log(0.25)], abs=1e-4)


def test_of_equals_the_lower_id_comes_first() -> None:
    assert [index for index, _ in logprobs(LOGITS, 0, 3).top] == [1, 0, 2]


@pytest.mark.parametrize(("n_top", "n_found"), [(0, 0), (4, 4), (20, 4)])
def test_there_are_as_many_as_asked_and_no_more_than_tokens(n_top: int, n_found: int) -> None:
    assert len(logprobs(LOGITS, 0, n_top).top) == n_found


def test_a_token_that_cannot_be_has_a_number() -> None:
    logits = np.array([0.0, -np.inf], np.float32)
    assert rounded(logprobs(logits, 1, 2)) == Logprobs(1, FLOOR, ((0, 0.0), (1, FLOOR)))
