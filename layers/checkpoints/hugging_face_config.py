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
from quickthaw.layers.checkpoints.hugging_face_rope import ROPE_KEYS, read_rope
from quickthaw.layers.errors import CheckpointError, UnsupportedModelError

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
_SPEAKS_OF_COMPUTATION = re.compile(
    "act|adapter|alibi|attn|attention|bias|cap|expert|factor|head|layer|lora|mlp|moe|mup|multiplier|norm|position"
    "|prune|quant|residual|rope|rotary|scal|sink|soft|window"
)


def from_hugging_face(config: Mapping[str, Any]) -> ModelConfig:
    """The model that a config.json describes.

    Raises: UnsupportedModelError naming what is not computed, CheckpointError naming what is absent.
    """
    family = _family(config)
    values = {**_COMMON_DEFAULTS, **_DEFAULTS[family], **config}
    _refuse_options(family, config, values)
    n_heads = _required(values, "num_attention_heads")
    n_layers = _required(values, "num_hidden_layers")
    hidden_size = _required(values, "hidden_size")
    try:
        return ModelConfig(
            family=family,
            vocab_size=_required(values, "vocab_size"),
            hidden_size=hidden_size,
            n_layers=n_layers,
            n_heads=n_heads,
            n_kv_heads=_or(values.get("num_key_value_heads"), n_heads),
            head_dim=_or(values.get("head_dim"), hidden_size // n_heads),
            ffn_size=_required(values, "intermediate_size"),
            norm_eps=float(values["rms_norm_eps"]),
            max_positions=values["max_position_embeddings"],
            tied_head=bool(values["tie_word_embeddings"]),
            windows=_windows(family, values, n_layers),
            rope=read_rope(config, values["max_position_embeddings"]),
            bos_token_id=token_ids(values.get("bos_token_id"))[0]
            if values.get("bos_token_id") is not None
            else None,
            eos_token_ids=token_ids(values.get("eos_token_id")),
        ).checked()
    except (ValueError, TypeError, ZeroDivisionError) as exc:
        raise UnsupportedModelError("config.json describes an impossible model", found=str(exc)) from exc


def declared_biases(config: Mapping[str, Any]) -> frozenset[str]:
    """The biases that each layer of the model has."""
    family = config["model_type"]
    if family == "qwen2":
        return frozenset(("qkv_bias",))
    biases: set[str] = set()
    if config.get("attention_bias"):
        biases |= {"qkv_bias", "attn_out_bias"}
    if config.get("mlp_bias"):
        biases |= {"gate_up_bias", "down_bias"}
    return frozenset(biases)


def token_ids(value: int | list[int] | None) -> tuple[int, ...]:
    """The ids in a key that holds none, one, or a list."""
    if value is None:
        return ()
    return tuple(value) if isinstance(value, list) else (value,)


def _or(value: Any, default: int) -> Any:
    return default if value is None else value


def _required(values: Mapping[str, Any], key: str) -> int:
    value = values.get(key)
    if type(value) is not int or value < 1:
        raise CheckpointError(
            f"config.json has no usable {key}", expected="a positive number", found=repr(value)
        )
    return value


def _refuse(key: str, found: object, expected: str) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"unsupported {key} in config.json", expected=expected, found=repr(found)[:120]
    )


def _family(config: Mapping[str, Any]) -> str:
    family = config.get("model_type")
    if family not in FAMILIES:
        raise _refuse("model_type", family, f"one of {', '.join(FAMILIES)}")
    architectures = config.get("architectures") or [_ARCHITECTURES[family]]
    if architectures != [_ARCHITECTURES[family]]:
        raise _refuse("architectures", architectures, _ARCHITECTURES[family])
    return str(family)


def _refuse_options(family: str, config: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    if config.get("auto_map"):
        raise _refuse("auto_map", config["auto_map"], "none: a checkpoint's own code is never run")
    if values["hidden_act"] != "silu":
        raise _refuse("hidden_act", values["hidden_act"], "silu")
    for key, families in (("attention_bias", ("llama", "qwen3")), ("mlp_bias", ("llama",))):
        if config.get(key) and family not in families:
            raise _refuse(key, config[key], f"false for {family}")
    for key, value in config.items():
        is_known = key in _COMPUTED or key in _HARMLESS
        if not is_known and value not in (None, False, [], {}) and _SPEAKS_OF_COMPUTATION.search(key.lower()):
            raise _refuse(key, value, "none, because it may change the computation")


def _windows(family: str, values: Mapping[str, Any], n_layers: int) -> tuple[int | None, ...]:
    window = values.get("sliding_window")
    types = values.get("layer_types")
    if family in ("llama", "mistral"):
        if family == "llama" and window is not None:
            raise _refuse("sliding_window", window, "none for llama")
        expected = ["full_attention" if window is None else "sliding_attention"] * n_layers
        if types is not None and types != expected:
            raise _refuse("layer_types", types, f"{expected[0]} for every layer of this {family} model")
        return (window,) * n_layers
    if not values.get("use_sliding_window"):
        window = None
    if types is None:
        first = values["max_window_layers"]
        return tuple(window if index >= first else None for index in range(n_layers))
    if len(types) != n_layers or not set(types) <= {"full_attention", "sliding_attention"}:
        raise _refuse(
            "layer_types", types, f"full_attention or sliding_attention for each of {n_layers} layers"
        )
    if "sliding_attention" in types and window is None:
        raise _refuse("layer_types", types, "full_attention only, because sliding_window is off")
    return tuple(window if kind == "sliding_attention" else None for kind in types)
