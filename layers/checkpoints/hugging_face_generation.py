# SPDX-License-Identifier: Apache-2.0
"""What a checkpoint says of generating: the tokens that end a text, and settings left to the request.

Source: transformers 5 `GenerationConfig`, and `_get_logits_processor` in `generation/utils.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from quickthaw.layers.architecture import ModelConfig, end_tokens_problem
from quickthaw.layers.record import Record

# Settings that change even the likeliest text, each with the value that changes nothing (besides null).
_UNCHANGED: Mapping[str, Any] = {
    "repetition_penalty": 1,
    "no_repeat_ngram_size": 0,
    "encoder_repetition_penalty": 1,
    "encoder_no_repeat_ngram_size": 0,
    "min_length": 0,
    "min_new_tokens": 0,
    "num_beams": 1,
    "guidance_scale": 1,
    "penalty_alpha": 0,
    "suppress_tokens": [],
    "begin_suppress_tokens": [],
    "bad_words_ids": [],
    "force_words_ids": [],
    "constraints": [],
    "sequence_bias": {},
    "stop_strings": [],
    "forced_bos_token_id": None,
    "forced_eos_token_id": None,
    "exponential_decay_length_penalty": None,
    "dola_layers": None,
    "watermarking_config": None,
}
_SENT_AS = {
    "repetition_penalty": "repetition_penalty",
    "stop_strings": "stop",
    "suppress_tokens": "logit_bias",
    "sequence_bias": "logit_bias",
}


def end_token_ids(generation: Record, model: ModelConfig) -> tuple[int, ...]:
    """Every token that ends a text, by the model's configuration or by that of generation.

    Raises: CheckpointError when one is no token of the vocabulary.
    """
    found = token_ids(generation, "eos_token_id")
    if problem := end_tokens_problem(found, model.vocab_size):
        raise generation.unusable("eos_token_id", problem)
    return tuple(sorted({*model.eos_token_ids, *found}))


def token_ids(record: Record, key: str) -> tuple[int, ...]:
    """The ids in a field that holds none, one, or a list. Raises: the record's error."""
    if key not in record:
        return ()
    return record.integers(key) if record.is_list(key) else (record.integer(key),)


def notes(generation: Record, file_name: str) -> Iterator[str]:
    """A sentence for each setting that transformers applies unasked, and this package only when asked."""
    for key, unchanged in _UNCHANGED.items():
        value = generation.get(key)
        if value is None or value is False or value == unchanged:
            continue
        asked = f"{file_name} asks for {key} {str(value)[:80]}, which is not applied"
        sent_as = _SENT_AS.get(key)
        if sent_as is not None:
            asked += ": send it with the request"
        yield asked if sent_as in (None, key) else f"{asked} as {sent_as}"
