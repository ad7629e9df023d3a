# SPDX-License-Identifier: Apache-2.0
"""How likely a prompt is, token by token, by a session's echo and by transformers."""

from pathlib import Path

import pytest
import torch
import transformers

from quickthaw.handler.config import HandlerConfig
from quickthaw.handler.generation import Generation
from quickthaw.handler.session import Session
from tests import greedy, shards
from tests.greedy import Case

CASE = Case("llama", "f32", 20)


def test_an_echo_scores_a_prompt(tmp_path: Path) -> None:
    source = greedy.checkpoint(tmp_path / "source", CASE)
    out = shards.split_into(source, tmp_path / "out")
    prompt_ids = greedy.prompt(CASE)

    environ = {"QUICKTHAW_SHARDS": str(out), "QUICKTHAW_CACHE": str(tmp_path / "cache")}
    request = Generation(0, [prompt_ids], is_echoed=True, n_top_logprobs=3)
    (echo,) = Session.open(HandlerConfig.from_env(environ)).generate(request)

    model = transformers.AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    with torch.no_grad():
        expected = model(torch.tensor([prompt_ids])).logits[0].double().log_softmax(dim=-1)
    assert [each.token_id for each in echo.logprobs] == prompt_ids
    assert echo.logprobs[0].logprob is None
    for row, each in zip(expected, echo.logprobs[1:], strict=False):
        assert each.logprob == pytest.approx(float(row[each.token_id]), abs=1e-4)
        assert [value for _, value in each.top] == pytest.approx(row.topk(3).values.tolist(), abs=1e-4)
