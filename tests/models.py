# SPDX-License-Identifier: Apache-2.0
"""Tiny random checkpoints, made with numpy alone: a Hugging Face directory for each family and option.

A directory made here is one that `transformers.AutoModelForCausalLM.from_pretrained` loads.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from quickthaw.layers.architecture import ModelConfig
from quickthaw.layers.checkpoints.hugging_face_config import from_hugging_face
from quickthaw.layers.errors import CheckpointError
from quickthaw.layers.record import Record

Array = npt.NDArray[np.float32]
Tensors = dict[str, Array]

_ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}
_SIZES: Mapping[str, Any] = {
    "vocab_size": 199,  # odd, so that rows and tensors need padding
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}

# Name → what its config.json says beyond the sizes above; both spellings of transformers occur.
CONFIGS: Mapping[str, Mapping[str, Any]] = {
    "llama": {"model_type": "llama", "rope_theta": 10000.0},
    "llama-tied": {"model_type": "llama", "tie_word_embeddings": True},
    "llama-biases": {"model_type": "llama", "attention_bias": True, "mlp_bias": True},
    "llama-head-dim": {"model_type": "llama", "head_dim": 24, "num_key_value_heads": 1},
    "llama-llama3": {"model_type": "llama", "rope_theta": 500000.0, "rope_scaling": _LLAMA3},
    "llama-linear": {
        "model_type": "llama",
        "rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0},
    },
    "llama-dynamic": {
        "model_type": "llama",
        "max_position_embeddings": 32,
        "rope_scaling": {"type": "dynamic", "factor": 2.0},
    },
    "mistral": {"model_type": "mistral", "sliding_window": None},
    "mistral-window": {"model_type": "mistral", "sliding_window": 8},
    "qwen2": {"model_type": "qwen2", "rope_theta": 1000000.0, "use_sliding_window": False},
    "qwen2-window": {
        "model_type": "qwen2",
        "use_sliding_window": True,
        "sliding_window": 8,
        "max_window_layers": 1,
    },
    "qwen3": {"model_type": "qwen3", "head_dim": 32, "tie_word_embeddings": True},
    "qwen3-window": {
        "model_type": "qwen3",
        "head_dim": 16,
        "use_sliding_window": True,
        "sliding_window": 8,
        "layer_types": ["full_attention", "sliding_attention", "full_attention"],
    },
    "qwen3-bias": {"model_type": "qwen3", "head_dim": 16, "attention_bias": True},
}


def config(name: str, **changes: Any) -> dict[str, Any]:
    """The config.json of a named checkpoint, with some keys changed."""
    special = CONFIGS[name]
    architectures = [_ARCHITECTURES[special["model_type"]]]
    return {"architectures": architectures, **_SIZES, **special, **changes}


def model_config(config: Mapping[str, Any]) -> ModelConfig:
    """The model that a config.json describes."""
    return from_hugging_face(Record(dict(config), "config.json", CheckpointError))


def tensors(config: Mapping[str, Any], seed: int = 0) -> Tensors:
    """Random weights under Hugging Face's names, for a model that `config` describes."""
    random = np.random.default_rng(seed)
    hidden, ffn = config["hidden_size"], config["intermediate_size"]
    head_dim = config.get("head_dim") or hidden // config["num_attention_heads"]
    q_rows, kv_rows = config["num_attention_heads"] * head_dim, config["num_key_value_heads"] * head_dim
    has_qkv_bias = config["model_type"] == "qwen2" or config.get("attention_bias", False)

    def matrix(*shape: int) -> Array:
        return (random.standard_normal(shape) * shape[-1] ** -0.5).astype(np.float32)

    def norm(size: int) -> Array:
        return (1 + 0.1 * random.standard_normal(size)).astype(np.float32)

    found = {
        "model.embed_tokens.weight": random.standard_normal((config["vocab_size"], hidden)).astype(
            np.float32
        ),
        "model.norm.weight": norm(hidden),
    }
    if not config["tie_word_embeddings"]:
        found["lm_head.weight"] = matrix(config["vocab_size"], hidden)
    for index in range(config["num_hidden_layers"]):
        layer = f"model.layers.{index}"
        found[f"{layer}.input_layernorm.weight"] = norm(hidden)
        found[f"{layer}.post_attention_layernorm.weight"] = norm(hidden)
        linears = {
            "self_attn.q_proj": (q_rows, hidden, has_qkv_bias),
            "self_attn.k_proj": (kv_rows, hidden, has_qkv_bias),
            "self_attn.v_proj": (kv_rows, hidden, has_qkv_bias),
            "self_attn.o_proj": (hidden, q_rows, config.get("attention_bias", False)),
            "mlp.gate_proj": (ffn, hidden, config.get("mlp_bias", False)),
            "mlp.up_proj": (ffn, hidden, config.get("mlp_bias", False)),
            "mlp.down_proj": (hidden, ffn, config.get("mlp_bias", False)),
        }
        for name, (n_rows, n_columns, has_bias) in linears.items():
            found[f"{layer}.{name}.weight"] = matrix(n_rows, n_columns)
            if has_bias:
                found[f"{layer}.{name}.bias"] = 0.1 * matrix(n_rows)
        if config["model_type"] == "qwen3":
            found[f"{layer}.self_attn.q_norm.weight"] = norm(head_dim)
            found[f"{layer}.self_attn.k_norm.weight"] = norm(head_dim)
    return found


def write_checkpoint(
    directory: Path, config: Mapping[str, Any], weights: Tensors, *, dtype: str = "F32", n_files: int = 1
) -> Path:
    """A Hugging Face directory; with several files there is an index. `dtype` is F32, F16 or BF16."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config))
    names = list(weights)
    if n_files == 1:
        write_safetensors(directory / "model.safetensors", weights, dtype)
        return directory
    weight_map = {}
    for index in range(n_files):
        file_name = f"model-{index + 1:05d}-of-{n_files:05d}.safetensors"
        part = {name: weights[name] for name in names[index::n_files]}
        write_safetensors(directory / file_name, part, dtype)
        weight_map.update(dict.fromkeys(part, file_name))
    index_record = {"metadata": {}, "weight_map": weight_map}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index_record))
    return directory


def write_safetensors(path: Path, weights: Tensors, dtype: str = "F32") -> None:
    """A safetensors file, written by hand: the library's numpy side knows no bf16."""
    encoded = {name: encode(values, dtype) for name, values in weights.items()}
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    table: dict[str, Any] = dict(header)
    for name, data in encoded.items():
        end = offset + len(data)
        table[name] = {"dtype": dtype, "shape": weights[name].shape, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(table).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(encoded.values()))


def encode(values: Array, dtype: str) -> bytes:
    """Values as they lie in a file; bf16 is cut, not rounded, which is as good for random weights."""
    if dtype == "F16":
        return values.astype("<f2").tobytes()
    if dtype == "BF16":
        return (values.astype("<f4").view("<u4") >> 16).astype("<u2").tobytes()
    return values.astype("<f4").tobytes()


def decode(values: Array, dtype: str) -> Array:
    """What is left of f32 values once they were stored as `dtype`."""
    data = encode(values, dtype)
    if dtype == "F16":
        return np.frombuffer(data, "<f2").astype(np.float32).reshape(values.shape)
    if dtype == "BF16":
        bits = np.frombuffer(data, "<u2").astype(np.uint32) << 16
        return bits.view(np.float32).reshape(values.shape)
    return values
