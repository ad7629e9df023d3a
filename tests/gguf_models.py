# SPDX-License-Identifier: Apache-2.0
"""Tiny GGUF files, made from the tiny Hugging Face checkpoints as llama.cpp's converter makes them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

from tests.models import Array, Tensors

_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def gguf_name(name: str) -> str:
    """Hugging Face's name of a tensor as GGUF's."""
    stem, _, kind = name.rpartition(".")
    if stem.startswith("model.layers."):
        _, _, index, rest = stem.split(".", 3)
        return f"blk.{index}.{_NAMES[rest]}.{kind}"
    return f"{_NAMES[stem]}.{kind}"


def permute(weights: Array, n_heads: int) -> Array:
    """Interleaves the halves of each head. Source: llama.cpp `convert_hf_to_gguf.py`, LlamaModel.permute."""
    halves = weights.reshape(n_heads, 2, weights.shape[0] // n_heads // 2, *weights.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(weights.shape)


def metadata(config: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata of a model that a config.json describes."""
    architecture = {"mistral": "llama"}.get(config["model_type"], config["model_type"])
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    values = {
        "block_count": config["num_hidden_layers"],
        "context_length": config["max_position_embeddings"],
        "embedding_length": config["hidden_size"],
        "feed_forward_length": config["intermediate_size"],
        "attention.head_count": config["num_attention_heads"],
        "attention.head_count_kv": config["num_key_value_heads"],
        "attention.key_length": head_dim,
        "attention.value_length": head_dim,
        "attention.layer_norm_rms_epsilon": float(config["rms_norm_eps"]),
        "rope.dimension_count": head_dim,
        "rope.freq_base": float(config.get("rope_theta", 10000.0)),
        "vocab_size": config["vocab_size"],
    }
    return {
        "general.architecture": architecture,
        "general.name": "tiny",
        **{f"{architecture}.{key}": value for key, value in values.items()},
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.bos_token_id": 1,
    }


def write_gguf(
    path: Path,
    values: Mapping[str, Any],
    weights: Tensors,
    matrix_type: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32,
    *,
    endianess: gguf.GGUFEndian = gguf.GGUFEndian.LITTLE,
    raw_tensors: Mapping[str, tuple[npt.NDArray[np.uint8], gguf.GGMLQuantizationType]] | None = None,
) -> Path:
    """A GGUF file with this metadata; `weights` have Hugging Face's names and order, `raw_tensors` GGUF's."""
    architecture = values["general.architecture"]
    writer = gguf.GGUFWriter(path, architecture, endianess=endianess)
    for key, value in values.items():
        if key != "general.architecture":
            _add(writer, key, value)
    for name, array in weights.items():
        if architecture == "llama" and ".q_proj." in name:
            array = permute(array, values["llama.attention.head_count"])
        if architecture == "llama" and ".k_proj." in name:
            array = permute(array, values["llama.attention.head_count_kv"])
        if array.ndim == 2:
            writer.add_tensor(gguf_name(name), gguf.quantize(array, matrix_type), raw_dtype=matrix_type)
        else:
            writer.add_tensor(name if name == "rope_freqs.weight" else gguf_name(name), array)
    for name, (rows, kind) in (raw_tensors or {}).items():
        writer.add_tensor(name, rows, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, value)
