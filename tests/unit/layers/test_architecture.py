# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json

import pytest

from quickthaw.layers.architecture import (
    ModelConfig,
    Rope,
    embedding_tensors,
    layer_tensors,
    required_layer_tensors,
)
from quickthaw.layers.errors import ManifestError
from quickthaw.layers.record import Record

MODEL = ModelConfig(
    family="llama",
    vocab_size=100,
    hidden_size=32,
    n_layers=2,
    n_heads=4,
    n_kv_heads=2,
    head_dim=8,
    ffn_size=48,
    norm_eps=1e-5,
    max_positions=64,
    tied_head=False,
    windows=(None, 16),
    rope=Rope(10000.0, "llama3", 8.0, 1.0, 4.0, 32),
    bos_token_id=1,
    eos_token_ids=(2, 3),
)


@pytest.mark.parametrize(
    "rope", [MODEL.rope, Rope(1e4), Rope(1e4, "factors", frequency_factors=(1.0, 2.0, 4.0, 8.0))]
)
def test_a_model_survives_json(rope: Rope) -> None:
    model = MODEL._replace(rope=rope)

    record = Record(json.loads(json.dumps(model.to_json())), "manifest.json", ManifestError)
    assert ModelConfig.from_json(record) == model


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("family", "gpt2"),
        ("vocab_size", 0),
        ("hidden_size", 2**31),
        ("hidden_size", 33),
        ("ffn_size", 97),
        ("n_layers", True),
        ("n_kv_heads", 3),
        ("head_dim", 7),
        ("norm_eps", 0.0),
        ("norm_eps", float("nan")),
        ("windows", (None,)),
        ("windows", (None, 0)),
        ("windows", (None, 2**31)),
        ("windows", (None, 16.0)),
        ("bos_token_id", "1"),
        ("eos_token_ids", (100,)),
        ("eos_token_ids", (-1,)),
        ("eos_token_ids", ("2",)),
        ("eos_token_ids", (True,)),
        ("rope", Rope(0.0)),
        ("rope", Rope(1e4, "yarn")),
        ("rope", Rope(1e4, "linear", float("inf"))),
        ("rope", Rope(1e4, "llama3", 8.0, 4.0, 1.0, 32)),
        ("rope", Rope(1e4, "dynamic", 2.0)),
        ("rope", Rope(1e4, "factors", frequency_factors=(1.0,))),
        ("rope", Rope(1e4, "factors", frequency_factors=(1.0, 1.0, 0.0, 1.0))),
    ],
)
def test_an_impossible_model_is_refused(field: str, value: object) -> None:
    with pytest.raises(ValueError, match=field):
        MODEL._replace(**{field: value}).checked()


def test_two_values_of_a_head_have_no_dynamic_rope() -> None:
    rope = Rope(1e4, "dynamic", 2.0, original_positions=32)
    assert MODEL._replace(rope=rope).checked()

    with pytest.raises(ValueError, match="rope kind is dynamic"):
        MODEL._replace(rope=rope, head_dim=2).checked()


def test_a_tied_head_is_no_tensor() -> None:
    assert "head" in embedding_tensors(MODEL)
    assert "head" not in embedding_tensors(MODEL._replace(tied_head=True))


def test_fused_shapes_add_their_parts() -> None:
    table = layer_tensors(MODEL)

    assert table["qkv"].part_rows == (32, 16, 16)
    assert table["qkv"].shape == (64, 32)
    assert table["gate_up"].shape == (96, 32)
    assert table["down"].shape == (32, 48)
    assert table["qkv_bias"].shape == (64,)


@pytest.mark.parametrize(
    ("family", "required", "possible"),
    [
        ("llama", set(), {"qkv_bias", "gate_up_bias"}),
        ("qwen2", {"qkv_bias"}, {"qkv_bias"}),
        ("qwen3", {"q_norm", "k_norm"}, {"qkv_bias", "q_norm"}),
    ],
)
def test_families_differ_in_the_tensors_they_need(
    family: str, required: set[str], possible: set[str]
) -> None:
    model = MODEL._replace(family=family)
    common = required_layer_tensors(MODEL)

    assert required_layer_tensors(model) == common | required
    assert possible <= layer_tensors(model).keys()
    assert ("q_norm" in layer_tensors(model)) == (family == "qwen3")
