# SPDX-License-Identifier: Apache-2.0
"""GGUF metadata → ModelConfig. A key of the architecture that is not listed here is refused, not ignored.

Source: llama.cpp `convert_hf_to_gguf.py` and `llama-model.cpp`; key names as in gguf's `constants.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from quickthaw.layers.architecture import ModelConfig, Rope
from quickthaw.layers.errors import UnsupportedModelError

ARCHITECTURES = ("llama", "qwen2", "qwen3")  # Mistral is written as llama
_END_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")

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
    metadata: Mapping[str, Any], tensor_names: frozenset[str], rope_factors: tuple[float, ...] | None = None
) -> ModelConfig:
    """The model that a GGUF file's metadata describes; `rope_factors` is its `rope_freqs.weight`.

    Raises: UnsupportedModelError naming what is not computed.
    """
    architecture = metadata.get("general.architecture")
    if architecture not in ARCHITECTURES:
        raise UnsupportedModelError(
            "unsupported GGUF architecture",
            expected=f"one of {', '.join(ARCHITECTURES)}",
            found=repr(architecture),
        )
    prefix = f"{architecture}."
    values = {key.removeprefix(prefix): value for key, value in metadata.items() if key.startswith(prefix)}
    _refuse_unknown(prefix, values)
    n_layers = _count(values, prefix, "block_count")
    hidden_size = _count(values, prefix, "embedding_length")
    n_heads = _count(values, prefix, "attention.head_count")
    head_dim = values.get("attention.key_length", hidden_size // max(n_heads, 1))
    for key in ("attention.value_length", "rope.dimension_count"):
        if values.get(key, head_dim) != head_dim:
            raise UnsupportedModelError(
                f"unsupported {prefix}{key}", expected=f"the head size {head_dim}", found=values[key]
            )
    vocabulary = metadata.get("tokenizer.ggml.tokens", ())
    try:
        return ModelConfig(
            family=architecture,
            vocab_size=values.get("vocab_size", len(vocabulary)),
            hidden_size=hidden_size,
            n_layers=n_layers,
            n_heads=n_heads,
            n_kv_heads=_count(values, prefix, "attention.head_count_kv", n_heads),
            head_dim=head_dim,
            ffn_size=_count(values, prefix, "feed_forward_length"),
            norm_eps=float(values.get("attention.layer_norm_rms_epsilon", 0.0)),
            max_positions=_count(values, prefix, "context_length"),
            tied_head="output.weight" not in tensor_names,
            windows=_windows(architecture, values, n_layers),
            rope=_rope(prefix, values, rope_factors),
            bos_token_id=metadata.get("tokenizer.ggml.bos_token_id"),
            eos_token_ids=end_token_ids(metadata),
        ).checked()
    except (ValueError, TypeError) as exc:
        raise UnsupportedModelError("GGUF metadata describes an impossible model", found=str(exc)) from exc


def end_token_ids(metadata: Mapping[str, Any]) -> tuple[int, ...]:
    """Every token that ends a text or a turn."""
    found = (metadata.get(f"tokenizer.ggml.{key}") for key in _END_KEYS)
    return tuple(sorted({token_id for token_id in found if token_id is not None}))


def _refuse_unknown(prefix: str, values: Mapping[str, Any]) -> None:
    for key, value in values.items():
        if key not in _COMPUTED and value not in _HARMLESS.get(key, ()):
            raise UnsupportedModelError(
                f"unsupported GGUF metadata {prefix}{key}",
                expected=" or ".join(map(repr, _HARMLESS.get(key, ("none",)))),
                found=repr(value)[:80],
            )


def _count(values: Mapping[str, Any], prefix: str, key: str, default: int | None = None) -> int:
    count = values.get(key, default)
    if type(count) is not int:
        # An array gives each layer its own number: a model that is not uniform.
        raise UnsupportedModelError(
            f"unsupported GGUF metadata {prefix}{key}", expected="one number", found=repr(count)[:80]
        )
    return count


def _windows(architecture: str, values: Mapping[str, Any], n_layers: int) -> tuple[int | None, ...]:
    window = values.get("attention.sliding_window") or None
    if window is not None and architecture != "llama":
        raise UnsupportedModelError(
            f"unsupported GGUF metadata {architecture}.attention.sliding_window",
            expected="none, because it does not say which layers have the window",
            found=window,
        )
    return (window,) * n_layers


def _rope(prefix: str, values: Mapping[str, Any], factors: tuple[float, ...] | None) -> Rope:
    theta = float(values.get("rope.freq_base", 10_000.0))
    kind = values.get("rope.scaling.type", "linear" if "rope.scale_linear" in values else "none")
    factor = float(values.get("rope.scaling.factor", values.get("rope.scale_linear", 1.0)))
    if kind not in ("none", "linear"):
        raise UnsupportedModelError(
            f"unsupported GGUF metadata {prefix}rope.scaling.type",
            expected="none or linear",
            found=repr(kind),
        )
    is_scaled = kind == "linear" and factor not in (0.0, 1.0)
    if factors is None:
        return Rope(theta, "linear", factor) if is_scaled else Rope(theta)
    if is_scaled:
        raise UnsupportedModelError("unsupported GGUF rope: rope_freqs.weight together with linear scaling")
    return Rope(theta, "factors", frequency_factors=factors)
