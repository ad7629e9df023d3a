# SPDX-License-Identifier: Apache-2.0
"""The sampler's probabilities against transformers' logits processors, in their order."""

import numpy as np
import pytest
import torch
from transformers.generation.logits_process import (
    LogitsProcessorList,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from quickthaw.layers.sampler import Logits, Sampler


def reference(logits: Logits, temperature: float, top_k: int | None, top_p: float | None) -> torch.Tensor:
    processors = LogitsProcessorList([TemperatureLogitsWarper(temperature)])
    if top_k is not None:
        processors.append(TopKLogitsWarper(top_k))
    if top_p is not None:
        processors.append(TopPLogitsWarper(top_p))
    # f64, so that a cumulative sum near top_p rounds alike.
    scores = processors(torch.LongTensor([[0]]), torch.from_numpy(logits.astype(np.float64))[None])
    return torch.softmax(scores, dim=-1)[0]


@pytest.mark.parametrize("temperature", [0.1, 0.7, 1.0, 2.0])
@pytest.mark.parametrize("top_k", [None, 1, 50, 100_000])
@pytest.mark.parametrize("top_p", [None, 0.05, 0.5, 0.95])
def test_probabilities(temperature: float, top_k: int | None, top_p: float | None) -> None:
    logits = (4 * np.random.default_rng(7).standard_normal(2000)).astype(np.float32)
    ours = Sampler(temperature, top_k, top_p).probabilities(logits)
    theirs = reference(logits, temperature, top_k, top_p).numpy()
    np.testing.assert_array_equal(ours > 0, theirs > 0)
    np.testing.assert_allclose(ours, theirs, rtol=1e-9)
