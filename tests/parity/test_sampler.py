# SPDX-License-Identifier: Apache-2.0
"""The sampler's probabilities against transformers' logits processors, in their order."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from transformers.generation.logits_process import (
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from quickthaw.layers.arrays import Logits
from quickthaw.layers.logprobs import logprobs
from quickthaw.layers.sampler import Sampler, Sampling

PROMPT_IDS = [3, 11, 11, 1999]
SAID = [5, 11, 5, 700]


class CountPenalties:
    """OpenAI's two penalties as its reference documents them: transformers has no processor for them."""

    def __init__(self, presence: float, frequency: float, n_prompt: int) -> None:
        self.presence, self.frequency, self.n_prompt = presence, frequency, n_prompt

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        counts = torch.bincount(input_ids[0, self.n_prompt :], minlength=scores.shape[1]).double()
        return scores - self.frequency * counts - self.presence * (counts > 0)


def processors(sampling: Sampling) -> LogitsProcessorList:
    found = LogitsProcessorList()
    if sampling.logit_bias:
        found.append(SequenceBiasLogitsProcessor({(token,): bias for token, bias in sampling.logit_bias}))
    if sampling.repetition_penalty != 1:
        found.append(RepetitionPenaltyLogitsProcessor(sampling.repetition_penalty))
    if sampling.presence_penalty or sampling.frequency_penalty:
        penalties = sampling.presence_penalty, sampling.frequency_penalty
        found.append(CountPenalties(*penalties, len(PROMPT_IDS)))
    found.append(TemperatureLogitsWarper(sampling.temperature))
    if sampling.top_k is not None:
        found.append(TopKLogitsWarper(sampling.top_k))
    if sampling.top_p is not None:
        found.append(TopPLogitsWarper(sampling.top_p))
    if sampling.min_p is not None:
        found.append(MinPLogitsWarper(sampling.min_p))
    return found


def random_logits(seed: int = 7) -> Logits:
    return (4 * np.random.default_rng(seed).standard_normal(2000)).astype(np.float32)


def assert_same(sampling: Sampling, said: Sequence[int] = ()) -> None:
    logits = random_logits()
    sampler = Sampler(sampling, PROMPT_IDS)
    for token_id in said:
        assert sampler.sample(np.where(np.arange(2000) == token_id, 1e6, -1e6).astype(np.float32)) == token_id
    ours = sampler.probabilities(logits)
    # f64, so that a cumulative sum near top_p rounds alike.
    scores = torch.from_numpy(logits.astype(np.float64))[None]
    theirs = torch.softmax(processors(sampling)(torch.LongTensor([[*PROMPT_IDS, *said]]), scores), dim=-1)
    np.testing.assert_array_equal(ours > 0, theirs[0].numpy() > 0)
    np.testing.assert_allclose(ours, theirs[0].numpy(), rtol=1e-9)


@pytest.mark.parametrize("temperature", [0.1, 0.7, 1.0, 2.0])
@pytest.mark.parametrize("top_k", [None, 1, 50, 100_000])
@pytest.mark.parametrize("top_p", [None, 0.05, 0.5, 0.95])
@pytest.mark.parametrize("min_p", [None, 0.02, 0.9])
def test_filters(temperature: float, top_k: int | None, top_p: float | None, min_p: float | None) -> None:
    assert_same(Sampling(temperature, top_k, top_p, min_p))


@pytest.mark.parametrize("repetition_penalty", [0.5, 1.0, 1.3])
@pytest.mark.parametrize(("presence", "frequency"), [(0, 0), (1.5, 0), (0, -0.7), (2, 2)])
@pytest.mark.parametrize("logit_bias", [(), ((5, 20.0), (11, -100.0), (42, 7.5))])
def test_bias_and_penalties(
    repetition_penalty: float, presence: float, frequency: float, logit_bias: tuple[tuple[int, float], ...]
) -> None:
    penalties = repetition_penalty, presence, frequency
    assert_same(Sampling(0.7, 40, 0.95, 0.01, *penalties, logit_bias), SAID)


def test_log_probabilities() -> None:
    logits = random_logits()
    theirs = torch.log_softmax(torch.from_numpy(logits.astype(np.float64)), dim=-1)
    values, indices = theirs.topk(20)
    found = logprobs(logits, 77, 20)
    assert found.logprob == pytest.approx(float(theirs[77]), rel=1e-12)
    assert [index for index, _ in found.top] == indices.tolist()
    assert [value for _, value in found.top] == pytest.approx(values.tolist(), rel=1e-12)
