# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest

from quickthaw.layers.architecture import Rope
from quickthaw.layers.checkpoints.hugging_face_config import declared_biases
from quickthaw.layers.errors import CheckpointError, UnsupportedModelError
from quickthaw.layers.record import Record
from tests import models


@pytest.mark.parametrize("name", models.CONFIGS)
def test_every_supported_option_is_read(name: str) -> None:
    model = models.model_config(models.config(name))

    assert model.family == name.partition("-")[0]
    assert (model.hidden_size, model.n_layers, model.ffn_size, model.eos_token_ids) == (64, 3, 96, (2,))


def test_absent_keys_mean_what_transformers_assumes() -> None:
    config = models.config("mistral")
    for key in (
        "sliding_window",
        "num_key_value_heads",
        "max_position_embeddings",
        "rms_norm_eps",
        "eos_token_id",
    ):
        del config[key]
    config["num_attention_heads"] = 8

    model = models.model_config(config)

    assert model.windows == (4096,) * 3
    assert (model.n_kv_heads, model.max_positions, model.norm_eps, model.eos_token_ids) == (
        8,
        131072,
        1e-6,
        (2,),
    )
    assert model.rope == Rope(10000.0)


def test_qwen3_assumes_its_own_head_size() -> None:
    config = models.config("qwen3")
    del config["head_dim"]

    assert models.model_config(config).head_dim == 128


@pytest.mark.parametrize(
    ("changes", "rope"),
    [
        ({"rope_theta": 5e5, "rope_scaling": None}, Rope(5e5)),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}, Rope(5e5)),
        ({"rope_theta": 1e6, "rope_scaling": {"type": "linear", "factor": 2}}, Rope(1e6, "linear", 2.0)),
        ({"rope_parameters": {"rope_type": "linear", "factor": 2.0}}, Rope(1e4, "linear", 2.0)),
        (
            {"rope_scaling": {"rope_type": "dynamic", "type": "dynamic", "factor": 2.0}},
            Rope(1e4, "dynamic", 2.0, original_positions=256),
        ),
        (
            {
                "rope_scaling": {
                    "rope_type": "llama3",
                    "factor": 8,
                    "low_freq_factor": 1,
                    "high_freq_factor": 4,
                }
            },
            Rope(1e4, "llama3", 8.0, 1.0, 4.0, 256),
        ),
        (
            {
                "rope_parameters": {
                    "rope_type": "llama3",
                    "rope_theta": 5e5,
                    "factor": 8.0,
                    "low_freq_factor": 1.0,
                    "high_freq_factor": 4.0,
                    "original_max_position_embeddings": 64,
                },
                "original_max_position_embeddings": 32,
            },
            Rope(5e5, "llama3", 8.0, 1.0, 4.0, 32),
        ),
    ],
)
def test_rope_is_read_in_both_spellings(changes: dict[str, Any], rope: Rope) -> None:
    config = models.config("llama")
    del config["rope_theta"]

    assert models.model_config(config | changes).rope == rope


@pytest.mark.parametrize(
    ("name", "changes", "windows"),
    [
        ("mistral", {"sliding_window": 8}, (8, 8, 8)),
        ("mistral", {"sliding_window": 8, "layer_types": ["sliding_attention"] * 3}, (8, 8, 8)),
        ("qwen2", {"sliding_window": 8}, (None, None, None)),
        ("qwen2", {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 2}, (None, None, 8)),
        ("qwen2", {"use_sliding_window": True}, (None, None, None)),
        ("qwen3", {"use_sliding_window": True, "max_window_layers": 0}, (4096,) * 3),
        (
            "qwen3",
            {
                "use_sliding_window": True,
                "sliding_window": 8,
                "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
            },
            (8, None, 8),
        ),
    ],
)
def test_windows_are_given_to_each_layer(
    name: str, changes: dict[str, Any], windows: tuple[int | None, ...]
) -> None:
    assert models.model_config(models.config(name, **changes)).windows == windows


@pytest.mark.parametrize(
    ("name", "changes", "named"),
    [
        ("llama", {"model_type": "gemma2"}, "model_type"),
        ("llama", {"model_type": None}, "model_type"),
        ("llama", {"architectures": ["LlamaForSequenceClassification"]}, "LlamaForSequenceClassification"),
        ("llama", {"architectures": ["MistralForCausalLM"]}, "MistralForCausalLM"),
        ("llama", {"auto_map": {"AutoModel": "modeling.Model"}}, "auto_map"),
        ("llama", {"hidden_act": "gelu"}, "hidden_act"),
        ("llama", {"quantization_config": {"quant_method": "gptq"}}, "quantization_config"),
        ("llama", {"num_local_experts": 8}, "num_local_experts"),
        ("llama", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping"),
        ("llama", {"rope_interleaved": True}, "rope_interleaved"),
        ("llama", {"residual_multiplier": 0.2}, "residual_multiplier"),
        ("llama", {"sliding_window": 8}, "sliding_window"),
        ("llama", {"layer_types": ["sliding_attention"] * 3}, "layer_types"),
        ("mistral", {"attention_bias": True}, "attention_bias"),
        ("qwen2", {"mlp_bias": True}, "mlp_bias"),
        ("mistral-window", {"layer_types": ["full_attention"] * 3}, "layer_types"),
        ("qwen3", {"layer_types": ["full_attention"] * 2}, "layer_types"),
        ("qwen3", {"layer_types": ["full_attention", "linear_attention", "full_attention"]}, "layer_types"),
        ("qwen3", {"layer_types": ["sliding_attention"] * 3}, "layer_types"),
        ("llama", {"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ("llama", {"rope_scaling": {"type": "yarn", "factor": 4.0}}, "yarn"),
        ("llama", {"rope_scaling": {"type": "longrope", "short_factor": [1.0]}}, "longrope"),
        ("qwen2", {"rope_scaling": {"type": "mrope", "mrope_section": [1, 2]}}, "mrope"),
        ("llama", {"rope_scaling": {"type": "dynamic", "factor": 2.0, "alpha": 1000.0}}, "alpha"),
        ("llama", {"rope_scaling": {"type": "linear"}}, "factor"),
        ("qwen3", {"rope_parameters": {"full_attention": {"rope_type": "default"}}}, "full_attention"),
        ("llama", {"num_key_value_heads": 3}, "n_kv_heads"),
        ("llama", {"head_dim": 15}, "head_dim"),
        ("llama", {"is_causal": False}, "is_causal in config.json: expected true, found False"),
        ("llama", {"is_causal": None}, "is_causal"),
        ("llama", {"is_encoder_decoder": True}, "is_encoder_decoder"),
        ("llama", {"transformers_weights": "other.safetensors"}, "transformers_weights"),
        ("llama", {"hidden_size": 66, "head_dim": 16, "intermediate_size": 97}, "ffn_size 97 is odd"),
        ("llama", {"hidden_size": 65, "head_dim": 16}, "hidden_size 65 is odd"),
        ("llama", {"head_dim": 2, "rope_scaling": {"type": "dynamic", "factor": 2.0}}, "dynamic"),
        ("llama", {"eos_token_id": 199}, "eos_token_ids has 199"),
        ("llama", {"eos_token_id": [2, -1]}, "eos_token_ids has -1"),
    ],
)
def test_what_is_not_computed_is_refused_by_name(name: str, changes: dict[str, Any], named: str) -> None:
    with pytest.raises(UnsupportedModelError, match=named):
        models.model_config(models.config(name, **changes))


@pytest.mark.parametrize(
    ("name", "changes", "named"),
    [
        ("llama", {"rms_norm_eps": "small"}, "rms_norm_eps"),
        ("llama", {"rms_norm_eps": 10**400}, "rms_norm_eps"),
        ("llama", {"max_position_embeddings": "long"}, "max_position_embeddings"),
        ("llama", {"num_hidden_layers": 10**9}, "num_hidden_layers"),
        ("llama", {"num_key_value_heads": True}, "num_key_value_heads"),
        ("llama", {"tie_word_embeddings": "false"}, "tie_word_embeddings"),
        ("llama", {"attention_bias": "false"}, "attention_bias"),
        ("llama", {"eos_token_id": "x"}, "eos_token_id"),
        ("llama", {"eos_token_id": [[1]]}, "eos_token_id"),
        ("llama", {"bos_token_id": {}}, "bos_token_id"),
        ("llama", {"rope_scaling": 5}, "rope_scaling"),
        ("llama", {"rope_scaling": {"type": 5}}, "rope_scaling.type"),
        ("llama", {"rope_scaling": {"type": "linear", "factor": "2"}}, "rope_scaling.factor"),
        ("llama", {"rope_theta": 10**400}, "rope_theta"),
        ("llama", {"partial_rotary_factor": "1"}, "partial_rotary_factor"),
        ("mistral", {"sliding_window": 10**30}, "sliding_window"),
        ("mistral", {"sliding_window": 0}, "sliding_window"),
        ("mistral", {"sliding_window": 2**31}, "sliding_window"),
        ("qwen2", {"max_window_layers": "all"}, "max_window_layers"),
        ("qwen2", {"use_sliding_window": 1}, "use_sliding_window"),
        ("qwen3", {"layer_types": 5}, "layer_types"),
    ],
)
def test_what_is_malformed_is_named_with_its_file(name: str, changes: dict[str, Any], named: str) -> None:
    with pytest.raises(CheckpointError, match=rf"^unusable {named}: config\.json: expected"):
        models.model_config(models.config(name, **changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"transformers.js_config": {"dtype": "q4"}, "is_llama_config": True, "rope_interleaved": False},
        {"pretraining_tp": 2, "attention_dropout": 0.1, "use_cache": False, "initializer_range": 0.02},
        {"torch_dtype": "bfloat16", "dtype": "bfloat16", "_name_or_path": "x", "unsloth_fixed": True},
        {"quantization_config": None, "partial_rotary_factor": 1.0},
        {"is_causal": True, "is_encoder_decoder": False, "transformers_weights": None},
    ],
)
def test_what_changes_nothing_is_accepted(changes: dict[str, Any]) -> None:
    changed = models.config("llama", **changes)
    assert models.model_config(changed) == models.model_config(models.config("llama"))


@pytest.mark.parametrize("key", ["vocab_size", "hidden_size", "num_hidden_layers", "intermediate_size"])
def test_a_missing_size_is_named(key: str) -> None:
    config = models.config("llama")
    del config[key]

    with pytest.raises(CheckpointError, match=key):
        models.model_config(config)


@pytest.mark.parametrize(
    ("name", "biases"),
    [
        ("llama", set()),
        ("llama-biases", {"qkv_bias", "attn_out_bias", "gate_up_bias", "down_bias"}),
        ("qwen2", {"qkv_bias"}),
        ("qwen3", set()),
        ("qwen3-bias", {"qkv_bias", "attn_out_bias"}),
    ],
)
def test_biases_are_declared(name: str, biases: set[str]) -> None:
    assert declared_biases(Record(models.config(name), "config.json", CheckpointError)) == biases
