# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest

from quickthaw.layers.checkpoints.hugging_face_generation import notes
from quickthaw.layers.errors import CheckpointError
from quickthaw.layers.record import Record

FILE_NAME = "generation_config.json"


def noted(settings: dict[str, Any]) -> list[str]:
    return list(notes(Record(settings, FILE_NAME, CheckpointError), FILE_NAME))


def test_what_is_not_applied_is_told_with_what_to_do() -> None:
    asked = {"repetition_penalty": 1.1, "stop_strings": ["END"], "no_repeat_ngram_size": 3}

    assert noted(asked) == [
        "generation_config.json asks for repetition_penalty 1.1, which is not applied: "
        "send it with the request",
        "generation_config.json asks for no_repeat_ngram_size 3, which is not applied",
        "generation_config.json asks for stop_strings ['END'], which is not applied: "
        "send it with the request as stop",
    ]


def test_what_changes_nothing_is_not_told() -> None:
    neutral = {"repetition_penalty": 1.0, "no_repeat_ngram_size": 0, "suppress_tokens": [], "num_beams": 1}
    sampled = {"do_sample": True, "temperature": 0.6, "top_p": 0.9, "eos_token_id": 2, "bad_words_ids": None}

    assert noted(neutral) == noted(sampled) == noted({}) == []


@pytest.mark.parametrize("value", ["x" * 1000, [[1]] * 1000])
def test_what_is_told_is_short(value: Any) -> None:
    assert len(noted({"suppress_tokens": value})[0]) < 200
