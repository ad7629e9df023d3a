# SPDX-License-Identifier: Apache-2.0
"""config.json → ModelConfig, as transformers 4 or 5 spells it. What is not computed is refused.

A key may change the computation (then it is read here), or be harmless. An unknown key is refused when its
name speaks of the computation and it is on: transformers may ignore it, but whoever wrote it meant something.

Source: transformers 5 `configuration_{llama,mistral,qwen2,qwen3}.py`, `modeling_rope_utils.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from quickthaw.layers.architecture import FAMILIES, ModelConfig
from quickthaw.layers.checkpoints.hugging_face_generation import token_ids
from quickthaw.layers.checkpoints.hugging_face_rope import ROPE_KEYS, read_rope
from quickthaw.layers.errors import UnsupportedModelError
from quickthaw.layers.record import Record

_ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}

# What transformers assumes when a key is absent. No entry: the key must be there.
_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "llama": {"max_position_embeddings": 2048, "bos_token_id": 1, "eos_token_id": 2},
    "mistral": {
        "max_position_embeddings": 131072,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "num_key_value_heads": 8,
        "sliding_window": 4096,
    },
    "qwen2": {"max_position_embeddings": 32768, "num_key_value_heads": 32, "sliding_window": 4096},
    "qwen3": {
        "max_position_embeddings": 32768,
        "num_key_value_heads": 32,
        "sliding_window": 4096,
        "head_dim": 128,
    },
}
_COMMON_DEFAULTS: Mapping[str, Any] = {
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
    "hidden_act": "silu",
    "is_causal": True,
    "max_window_layers": 28,
}

_COMPUTED = ROPE_KEYS | {
    "model_type",
    "architectures",
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "max_position_embeddings",
    "rms_norm_eps",
    "tie_word_embeddings",
    "hidden_act",
    "bos_token_id",
    "eos_token_id",
    "attention_bias",
    "mlp_bias",
    "sliding_window",
    "use_sliding_window",
    "max_window_layers",
    "layer_types",
    "is_causal",
}
_HARMLESS = frozenset(
    (
        "attention_dropout",  # of training
        "attn_implementation",
        "_attn_implementation",
        "_attn_implementation_autoset",
        "use_cache",
        "pretraining_tp",  # splits a product into sums of the same value
        "initializer_range",
        "max_length",
        "model_max_length",
    )
)
_LAYER_LIMIT = 10_000  # a hundred times as many as any model has; each takes memory before it is looked for
_SPEAKS_OF_COMPUTATION = re.compile(
    "act|adapter|alibi|attn|attention|bias|cap|causal|is_encoder|expert|factor|head|layer|lora|mlp|moe|mup|multiplier|norm|position"
    "|prune|quant|residual|rope|rotary|scal|sink|soft|window"
)


def from_hugging_face(config: Record) -> ModelConfig:
    """The model that a config.json describes.

    Raises: UnsupportedModelError naming what is not computed, CheckpointError naming what is malformed.
    """
    family = _family(config)
    values = config.over({**_COMMON_DEFAULTS, **_DEFAULTS[family]})
    _refuse_options(family, config, values)
    n_heads = _count(values, "num_attention_heads")
    n_layers = _count(values, "num_hidden_layers", _LAYER_LIMIT)
    hidden_size = _count(values, "hidden_size")
    max_positions = _count(values, "max_position_embeddings")
    bos_token_ids = token_ids(values, "bos_token_id")
    model = ModelConfig(
        family=family,
        vocab_size=_count(values, "vocab_size"),
        hidden_size=hidden_size,
        n_layers=n_layers,
        n_heads=n_heads,
        n_kv_heads=_count(values, "num_key_value_heads") if "num_key_value_heads" in values else n_heads,
        head_dim=_count(values, "head_dim") if "head_dim" in values else hidden_size // n_heads,
        ffn_size=_count(values, "intermediate_size"),
        norm_eps=values.number("rms_norm_eps"),
        max_positions=max_positions,
        tied_head=_is_on(values, "tie_word_embeddings"),
        windows=_windows(family, values, n_layers),
        rope=read_rope(config, max_positions),
        bos_token_id=bos_token_ids[0] if bos_token_ids else None,
        eos_token_ids=token_ids(values, "eos_token_id"),
    )
    try:
        return model.checked()
    except ValueError as exc:
        raise UnsupportedModelError("config.json describes an impossible model", found=str(exc)) from exc


def declared_biases(config: Record) -> frozenset[str]:
    """The biases that each layer of the model has."""
    if config.text("model_type") == "qwen2":
        return frozenset(("qkv_bias",))
    biases: set[str] = set()
    if _is_on(config, "attention_bias"):
        biases |= {"qkv_bias", "attn_out_bias"}
    if _is_on(config, "mlp_bias"):
        biases |= {"gate_up_bias", "down_bias"}
    return frozenset(biases)


def _is_on(values: Record, key: str) -> bool:
    return values.flag(key) if key in values else False


def _count(values: Record, key: str, limit: int = 2**31) -> int:
    count = values.integer(key)
    if not 1 <= count < limit:
        raise values.unusable(key, f"a number from 1 to {limit - 1}")
    return count


def _refuse(key: str, found: object, expected: str) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"unsupported {key} in config.json", expected=expected, found=repr(found)[:120]
    )


def _family(config: Record) -> str:
    family = config.get("model_type")
    if family not in FAMILIES:
        raise _refuse("model_type", family, f"one of {', '.join(FAMILIES)}")
    architectures = config.get("architectures") or [_ARCHITECTURES[family]]
    if architectures != [_ARCHITECTURES[family]]:
        raise _refuse("architectures", architectures, _ARCHITECTURES[family])
    return str(family)


def _refuse_options(family: str, config: Record, values: Record) -> None:
    if config.get("auto_map"):
        raise _refuse("auto_map", config.get("auto_map"), "none: a checkpoint's own code is never run")
    if (weights := config.get("transformers_weights")) is not None:
        raise _refuse("transformers_weights", weights, "none: the weights are model.safetensors or its index")
    if values.get("hidden_act") != "silu":
        raise _refuse("hidden_act", values.get("hidden_act"), "silu")
    # The one key that changes the computation when it is off: then a token sees those after it.
    if values.get("is_causal") is not True:
        raise _refuse("is_causal", values.get("is_causal"), "true")
    for key, families in (("attention_bias", ("llama", "qwen3")), ("mlp_bias", ("llama",))):
        if _is_on(config, key) and family not in families:
            raise _refuse(key, True, f"false for {family}")
    for key in config:
        value, is_known = config.get(key), key in _COMPUTED or key in _HARMLESS
        if not is_known and value not in (None, False, [], {}) and _SPEAKS_OF_COMPUTATION.search(key.lower()):
            raise _refuse(key, value, "none, because it may change the computation")


def _windows(family: str, values: Record, n_layers: int) -> tuple[int | None, ...]:
    window = _count(values, "sliding_window") if "sliding_window" in values else None
    types = values.items("layer_types") if "layer_types" in values else None
    if family in ("llama", "mistral"):
        if family == "llama" and window is not None:
            raise _refuse("sliding_window", window, "none for llama")
        expected = ["full_attention" if window is None else "sliding_attention"] * n_layers
        if types is not None and types != expected:
            raise _refuse("layer_types", types, f"{expected[0]} for every layer of this {family} model")
        return (window,) * n_layers
    if not _is_on(values, "use_sliding_window"):
        window = None
    if types is None:
        first = values.integer("max_window_layers")
        return tuple(window if index >= first else None for index in range(n_layers))
    if len(types) != n_layers or any(kind not in ("full_attention", "sliding_attention") for kind in types):
        raise _refuse(
            "layer_types", types, f"full_attention or sliding_attention for each of {n_layers} layers"
        )
    if "sliding_attention" in types and window is None:
        raise _refuse("layer_types", types, "full_attention only, because sliding_window is off")
    return tuple(window if kind == "sliding_attention" else None for kind in types)
