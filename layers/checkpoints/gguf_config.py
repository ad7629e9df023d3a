# SPDX-License-Identifier: Apache-2.0
"""GGUF metadata → ModelConfig. A key of the architecture that is not listed here is refused, not ignored.

Source: llama.cpp `convert_hf_to_gguf.py` and `llama-model.cpp`; key names as in gguf's `constants.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from quickthaw.layers.architecture import ModelConfig, Rope
from quickthaw.layers.errors import UnsupportedModelError
from quickthaw.layers.record import Record

ARCHITECTURES = ("llama", "qwen2", "qwen3")  # Mistral is written as llama
_END_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")

_LAYER_LIMIT = 10_000  # a hundred times as many as any model has; each takes memory before it is looked for

_COMPUTED = frozenset(
    (
        "vocab_size",
        "context_length",
        "embedding_length",
        "block_count",
        "feed_forward_length",
        "attention.head_count",
        "attention.head_count_kv",
        "attention.key_length",
        "attention.value_length",
        "attention.layer_norm_rms_epsilon",
        "attention.sliding_window",
        "rope.dimension_count",
        "rope.freq_base",
        "rope.scaling.type",
        "rope.scaling.factor",
        "rope.scale_linear",
        "rope.scaling.original_context_length",
        "rope.scaling.finetuned",
    )
)
# Keys that are harmless with these values, and change the computation with any other.
_HARMLESS: Mapping[str, tuple[Any, ...]] = {
    "tensor_data_layout": ("Meta AI original pth",),
    "expert_count": (0,),
    "expert_used_count": (0,),
    "pooling_type": (0,),
    "attention.causal": (True,),
    "rope.scaling.attn_factor": (1.0,),
    "use_parallel_residual": (False,),
}


def from_gguf(
    metadata: Record, tensor_names: frozenset[str], rope_factors: tuple[float, ...] | None = None
) -> ModelConfig:
    """The model that a GGUF file's metadata describes; `rope_factors` is its `rope_freqs.weight`.

    Raises: UnsupportedModelError naming what is not computed, CheckpointError naming what is malformed.
    """
    architecture = metadata.get("general.architecture")
    if architecture not in ARCHITECTURES:
        raise UnsupportedModelError(
            "unsupported GGUF architecture",
            expected=f"one of {', '.join(ARCHITECTURES)}",
            found=repr(architecture),
        )
    prefix = f"{architecture}."
    _refuse_unknown(prefix, metadata)
    n_layers = _count(metadata, f"{prefix}block_count", limit=_LAYER_LIMIT)
    hidden_size = _count(metadata, f"{prefix}embedding_length")
    n_heads = _count(metadata, f"{prefix}attention.head_count")
    head_dim = _head_dim(prefix, metadata, hidden_size // max(n_heads, 1))
    tokens = "tokenizer.ggml.tokens"
    n_tokens = len(metadata.items(tokens)) if tokens in metadata else 0
    bos = "tokenizer.ggml.bos_token_id"
    model = ModelConfig(
        family=architecture,
        vocab_size=_count(metadata, f"{prefix}vocab_size", n_tokens),
        hidden_size=hidden_size,
        n_layers=n_layers,
        n_heads=n_heads,
        n_kv_heads=_count(metadata, f"{prefix}attention.head_count_kv", n_heads),
        head_dim=head_dim,
        ffn_size=_count(metadata, f"{prefix}feed_forward_length"),
        norm_eps=_number(metadata, f"{prefix}attention.layer_norm_rms_epsilon", 0.0),
        max_positions=_count(metadata, f"{prefix}context_length"),
        tied_head="output.weight" not in tensor_names,
        windows=_windows(architecture, metadata, n_layers),
        rope=_rope(prefix, metadata, rope_factors),
        bos_token_id=metadata.integer(bos) if bos in metadata else None,
        eos_token_ids=_end_token_ids(metadata),
    )
    try:
        return model.checked()
    except ValueError as exc:
        raise UnsupportedModelError("GGUF metadata describes an impossible model", found=str(exc)) from exc


def _end_token_ids(metadata: Record) -> tuple[int, ...]:
    """Every token that ends a text or a turn."""
    keys = [f"tokenizer.ggml.{key}" for key in _END_KEYS]
    return tuple(sorted({metadata.integer(key) for key in keys if key in metadata}))


def _head_dim(prefix: str, metadata: Record, default: int) -> int:
    head_dim = _count(metadata, f"{prefix}attention.key_length", default)
    for key in (f"{prefix}attention.value_length", f"{prefix}rope.dimension_count"):
        if _count(metadata, key, head_dim) != head_dim:
            raise UnsupportedModelError(
                f"unsupported {key}", expected=f"the head size {head_dim}", found=metadata.get(key)
            )
    return head_dim


def _refuse_unknown(prefix: str, metadata: Record) -> None:
    for name in metadata:
        key, value = name.removeprefix(prefix), metadata.get(name)
        if not name.startswith(prefix) or key in _COMPUTED or value in _HARMLESS.get(key, ()):
            continue
        raise UnsupportedModelError(
            f"unsupported GGUF metadata {name}",
            expected=" or ".join(map(repr, _HARMLESS.get(key, ("none",)))),
            found=repr(value)[:80],
        )


def _count(metadata: Record, key: str, default: int | None = None, limit: int = 2**31) -> int:
    if default is not None and key not in metadata:
        return default
    if metadata.is_list(key):
        raise UnsupportedModelError(
            f"unsupported GGUF metadata {key}",
            expected="one number, the same for every layer",
            found=repr(metadata.get(key))[:80],
        )
    count = metadata.integer(key)
    if count >= limit:
        raise metadata.unusable(key, f"a number below {limit}")
    return count


def _number(metadata: Record, key: str, default: float) -> float:
    return metadata.number(key) if key in metadata else default


def _windows(architecture: str, metadata: Record, n_layers: int) -> tuple[int | None, ...]:
    key = f"{architecture}.attention.sliding_window"
    window = _count(metadata, key, 0) or None
    if window is not None and architecture != "llama":
        raise UnsupportedModelError(
            f"unsupported GGUF metadata {key}",
            expected="none, because it does not say which layers have the window",
            found=window,
        )
    return (window,) * n_layers


def _rope(prefix: str, metadata: Record, factors: tuple[float, ...] | None) -> Rope:
    theta = _number(metadata, f"{prefix}rope.freq_base", 10_000.0)
    old_key, type_key = f"{prefix}rope.scale_linear", f"{prefix}rope.scaling.type"
    old_factor = _number(metadata, old_key, 1.0)
    factor = _number(metadata, f"{prefix}rope.scaling.factor", old_factor)
    kind = metadata.text(type_key) if type_key in metadata else "linear" if old_key in metadata else "none"
    if kind not in ("none", "linear"):
        raise UnsupportedModelError(
            f"unsupported GGUF metadata {type_key}", expected="none or linear", found=repr(kind)
        )
    is_scaled = kind == "linear" and factor not in (0.0, 1.0)
    if factors is None:
        return Rope(theta, "linear", factor) if is_scaled else Rope(theta)
    if is_scaled:
        raise UnsupportedModelError("unsupported GGUF rope: rope_freqs.weight together with linear scaling")
    return Rope(theta, "factors", frequency_factors=factors)
