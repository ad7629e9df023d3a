# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest

from quickthaw.layers.architecture import ModelConfig, Rope
from quickthaw.layers.checkpoints.gguf_config import from_gguf
from quickthaw.layers.errors import CheckpointError, UnsupportedModelError
from quickthaw.layers.record import Record
from tests import gguf_models, models

UNTIED = frozenset(("output.weight",))


def read(
    metadata: dict[str, Any], tensor_names: frozenset[str], factors: tuple[float, ...] | None = None
) -> ModelConfig:
    return from_gguf(Record(metadata, "model.gguf", CheckpointError), tensor_names, factors)


def metadata(name: str = "llama", **changes: Any) -> dict[str, Any]:
    """Metadata with some of the architecture's keys changed; `__` stands for a dot in their names."""
    found = gguf_models.metadata(models.config(name))
    prefix = found["general.architecture"]
    return found | {f"{prefix}.{key.replace('__', '.')}": value for key, value in changes.items()}


def test_sizes_are_read() -> None:
    model = read(metadata(), UNTIED)

    assert (model.family, model.vocab_size, model.hidden_size, model.ffn_size) == ("llama", 199, 64, 96)
    assert (model.n_layers, model.n_heads, model.n_kv_heads, model.head_dim) == (3, 4, 2, 16)
    assert (model.max_positions, model.norm_eps) == (256, 1e-5)
    assert (model.bos_token_id, model.eos_token_ids) == (1, (2,))
    assert (model.windows, model.rope, model.tied_head) == ((None,) * 3, Rope(10000.0), False)


def test_a_file_without_a_head_has_a_tied_one() -> None:
    assert read(metadata(), frozenset()).tied_head


def test_absent_keys_follow_from_others() -> None:
    found = metadata()
    for key in ("vocab_size", "attention.key_length", "attention.value_length", "attention.head_count_kv"):
        del found[f"llama.{key}"]

    model = read({**found, "tokenizer.ggml.tokens": ["a"] * 7}, UNTIED)

    assert (model.vocab_size, model.head_dim, model.n_kv_heads) == (7, 16, 4)


def test_every_token_that_ends_a_turn_ends_a_text() -> None:
    found = {**metadata(), "tokenizer.ggml.eot_token_id": 9, "tokenizer.ggml.eom_token_id": 2}

    assert read(found, UNTIED).eos_token_ids == (2, 9)


def test_a_window_is_every_layers() -> None:
    assert read(metadata(attention__sliding_window=8), UNTIED).windows == (8,) * 3
    assert read(metadata(attention__sliding_window=0), UNTIED).windows == (None,) * 3


@pytest.mark.parametrize(
    ("changes", "rope"),
    [
        ({"rope__scaling__type": "none"}, Rope(10000.0)),
        ({"rope__scaling__type": "linear", "rope__scaling__factor": 4.0}, Rope(10000.0, "linear", 4.0)),
        ({"rope__scale_linear": 4.0}, Rope(10000.0, "linear", 4.0)),
        ({"rope__scale_linear": 1.0}, Rope(10000.0)),
    ],
)
def test_rope_scaling_is_read(changes: dict[str, Any], rope: Rope) -> None:
    assert read(metadata(**changes), UNTIED).rope == rope


def test_frequency_factors_are_kept() -> None:
    factors = tuple(float(factor) for factor in range(1, 9))

    assert read(metadata(), UNTIED, factors).rope == Rope(10000.0, "factors", frequency_factors=factors)


@pytest.mark.parametrize(
    ("name", "changes", "named"),
    [
        ("llama", {"expert_count": 8}, "expert_count"),
        ("llama", {"attention__clamp_kqv": 8.0}, "attention.clamp_kqv"),
        ("llama", {"logit_scale": 0.5}, "logit_scale"),
        ("llama", {"attention__scale": 0.5}, "attention.scale"),
        ("llama", {"attention__causal": False}, "attention.causal"),
        ("llama", {"tensor_data_layout": "something else"}, "tensor_data_layout"),
        ("llama", {"something_new": 1}, "something_new"),
        ("llama", {"attention__value_length": 8}, "attention.value_length"),
        ("llama", {"rope__dimension_count": 8}, "rope.dimension_count"),
        ("llama", {"attention__head_count_kv": [2, 2, 4]}, "attention.head_count_kv"),
        ("llama", {"feed_forward_length": [96, 96, 48]}, "feed_forward_length"),
        ("llama", {"rope__scaling__type": "yarn", "rope__scaling__factor": 4.0}, "rope.scaling.type"),
        ("llama", {"rope__scaling__attn_factor": 1.5}, "rope.scaling.attn_factor"),
        ("qwen2", {"attention__sliding_window": 8}, "sliding_window"),
        ("llama", {"attention__head_count": 0}, "n_heads"),
        ("llama", {"attention__layer_norm_rms_epsilon": 0.0}, "norm_eps"),
    ],
)
def test_what_is_not_computed_is_refused_by_name(name: str, changes: dict[str, Any], named: str) -> None:
    with pytest.raises(UnsupportedModelError, match=named):
        read(metadata(name, **changes), UNTIED)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("llama.block_count", 2**40),
        ("llama.block_count", "3"),
        ("llama.vocab_size", 1.0),
        ("llama.attention.sliding_window", "8"),
        ("llama.attention.layer_norm_rms_epsilon", [1e-5]),
        ("llama.rope.freq_base", float("nan")),
        ("llama.rope.scaling.type", 1),
        ("tokenizer.ggml.eos_token_id", [2]),
        ("tokenizer.ggml.bos_token_id", "1"),
        ("tokenizer.ggml.tokens", 7),
    ],
)
def test_what_is_malformed_is_named_with_its_file(key: str, value: object) -> None:
    with pytest.raises(CheckpointError, match=rf"^unusable {key}: model\.gguf: expected"):
        read({**metadata(), key: value}, UNTIED)


@pytest.mark.parametrize("architecture", ["gemma2", "mamba", None])
def test_another_architecture_is_refused_with_what_is_supported(architecture: str | None) -> None:
    with pytest.raises(UnsupportedModelError, match=f"llama, qwen2, qwen3, found {architecture!r}"):
        read({"general.architecture": architecture}, UNTIED)


def test_scaling_and_factors_together_are_refused() -> None:
    found = metadata(rope__scaling__type="linear", rope__scaling__factor=4.0)

    with pytest.raises(UnsupportedModelError, match="rope_freqs"):
        read(found, UNTIED, (1.0,) * 8)
