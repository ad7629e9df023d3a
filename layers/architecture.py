# SPDX-License-Identifier: Apache-2.0
"""Model families as data: the numbers a forward pass needs, and the tensors that follow from them.

A shard set has one embedding shard and a shard for each layer. Their tensors, fused where every engine wants
them fused (`q` is n_heads * head_dim, `kv` is n_kv_heads * head_dim):

    embedding shard                          layer shard
    embedding  (vocab, hidden)               attn_norm (hidden)           ffn_norm (hidden)
    norm       (hidden)                      qkv       (q+kv+kv, hidden)  gate_up  (ffn+ffn, hidden)
    head       (vocab, hidden) if untied     qkv_bias  (q+kv+kv)          gate_up_bias (ffn+ffn)
                                             q_norm, k_norm (head_dim)    down     (hidden, ffn)
                                             attn_out  (hidden, q)        down_bias (hidden)
                                             attn_out_bias (hidden)

Named tuples here and on the rest of the start path: importing dataclasses costs 6 ms.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from quickthaw.layers.record import Record

FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
ROPE_KINDS = ("default", "linear", "dynamic", "llama3", "factors")

BIASES = frozenset(("qkv_bias", "attn_out_bias", "gate_up_bias", "down_bias"))
HEAD_NORMS = ("q_norm", "k_norm")  # qwen3 alone has them


class Rope(NamedTuple):
    """How positions become rotations: inverse frequencies `theta ** (-2i / head_dim)`, changed by `kind`.

    default: as they are. linear: divided by `factor`. llama3: divided by `factor` below a wavelength, blended
    between `low_freq_factor` and `high_freq_factor`. dynamic: theta grows once a sequence is longer than
    `original_positions`. factors: the i-th divided by `frequency_factors[i]`.

    Source: transformers `modeling_rope_utils.py`; for factors ggml's `rope_ext`.
    """

    theta: float
    kind: str = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 1.0
    original_positions: int = 0
    frequency_factors: tuple[float, ...] = ()

    @classmethod
    def from_json(cls, record: Record) -> Rope:
        """Raises: the record's error."""
        record.exactly(set(cls._fields))
        return cls(
            theta=record.number("theta"),
            kind=record.text("kind"),
            factor=record.number("factor"),
            low_freq_factor=record.number("low_freq_factor"),
            high_freq_factor=record.number("high_freq_factor"),
            original_positions=record.integer("original_positions"),
            frequency_factors=record.numbers("frequency_factors"),
        )


class ModelConfig(NamedTuple):
    """Everything a forward pass must know about a decoder; sizes count elements."""

    family: str
    vocab_size: int
    hidden_size: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    ffn_size: int
    norm_eps: float
    max_positions: int
    tied_head: bool
    windows: tuple[
        int | None, ...
    ]  # for each layer the number of keys a query sees, itself included; None: all
    rope: Rope
    bos_token_id: int | None
    eos_token_ids: tuple[int, ...]

    def checked(self) -> ModelConfig:
        """This model. Raises: ValueError when no decoder can have these numbers."""
        if problem := _first_problem(self):
            raise ValueError(problem)
        return self

    def to_json(self) -> dict[str, Any]:
        """A JSON object that `from_json` reads back to an equal ModelConfig."""
        return self._asdict() | {"rope": self.rope._asdict()}

    @classmethod
    def from_json(cls, record: Record) -> ModelConfig:
        """Raises: the record's error when `to_json` did not write it; ValueError as `checked` does."""
        record.exactly(set(cls._fields))
        sizes = {name: record.integer(name) for name in _COUNTS}
        return cls(
            **sizes,
            family=record.text("family"),
            norm_eps=record.number("norm_eps"),
            tied_head=record.flag("tied_head"),
            windows=tuple(record.items("windows")),
            rope=Rope.from_json(record.child("rope")),
            bos_token_id=record.integer("bos_token_id") if "bos_token_id" in record else None,
            eos_token_ids=record.integers("eos_token_ids"),
        ).checked()


_COUNT_LIMIT = 2**31
_COUNTS = (
    "vocab_size",
    "hidden_size",
    "n_layers",
    "n_heads",
    "n_kv_heads",
    "head_dim",
    "ffn_size",
    "max_positions",
)


def _first_problem(model: ModelConfig) -> str | None:
    for name in _COUNTS:
        count = getattr(model, name)
        if type(count) is not int or not 1 <= count < _COUNT_LIMIT:
            return f"{name} is {count!r}, not a positive number of elements"
    for name in ("hidden_size", "ffn_size"):
        if getattr(model, name) % 2:
            return f"{name} {getattr(model, name)} is odd, so its values cannot be taken in pairs"
    if model.family not in FAMILIES:
        return f"family is {model.family!r}, not one of {', '.join(FAMILIES)}"
    if model.n_heads % model.n_kv_heads:
        return f"n_heads {model.n_heads} is not a multiple of n_kv_heads {model.n_kv_heads}"
    if model.head_dim % 2:
        return f"head_dim {model.head_dim} is odd, so it cannot be rotated in pairs"
    if not 0 < model.norm_eps < 1:
        return f"norm_eps is {model.norm_eps!r}, not between 0 and 1"
    if len(model.windows) != model.n_layers:
        return f"windows has {len(model.windows)} entries for {model.n_layers} layers"
    for window in model.windows:
        if window is not None and (type(window) is not int or not 1 <= window < _COUNT_LIMIT):
            return f"windows has {window!r}, neither a positive number of keys nor null"
    if model.bos_token_id is not None and type(model.bos_token_id) is not int:
        return f"bos_token_id is {model.bos_token_id!r}, no token id"
    if problem := end_tokens_problem(model.eos_token_ids, model.vocab_size):
        return problem
    return _rope_problem(model.rope, model.head_dim)


def end_tokens_problem(token_ids: Iterable[object], vocab_size: int) -> str | None:
    """What is wrong with the tokens that end a text; None when each is one of the vocabulary."""
    for token_id in token_ids:
        if type(token_id) is not int or not 0 <= token_id < vocab_size:
            return f"eos_token_ids has {token_id!r}, no token of a vocabulary of {vocab_size}"
    return None


def _rope_problem(rope: Rope, head_dim: int) -> str | None:
    if rope.kind not in ROPE_KINDS:
        return f"rope kind is {rope.kind!r}, not one of {', '.join(ROPE_KINDS)}"
    if not 0 < rope.theta < float("inf"):
        return f"rope theta is {rope.theta!r}, not a positive number"
    if not 0 < rope.factor < float("inf"):
        return f"rope factor is {rope.factor!r}, not a positive number"
    if rope.kind == "llama3" and not 0 < rope.low_freq_factor < rope.high_freq_factor:
        return f"rope frequency factors are not 0 < low {rope.low_freq_factor} < high {rope.high_freq_factor}"
    if rope.kind in ("llama3", "dynamic") and rope.original_positions < 1:
        return f"rope original_positions is {rope.original_positions!r}, not positive"
    if rope.kind == "dynamic" and head_dim == 2:
        return "rope kind is dynamic, which needs a head_dim above 2"
    n_factors = head_dim // 2 if rope.kind == "factors" else 0
    if len(rope.frequency_factors) != n_factors:
        return f"rope has {len(rope.frequency_factors)} frequency factors, not {n_factors}"
    if not all(0 < factor < float("inf") for factor in rope.frequency_factors):
        return "rope has a frequency factor that is not a positive number"
    return None


class FusedShape(NamedTuple):
    """A tensor as it is fused from parts: the rows of each part, and the row length (None for a vector)."""

    part_rows: tuple[int, ...]
    n_columns: int | None

    @property
    def shape(self) -> tuple[int, ...]:
        """The fused tensor's shape."""
        n_rows = sum(self.part_rows)
        return (n_rows,) if self.n_columns is None else (n_rows, self.n_columns)


def embedding_tensors(model: ModelConfig) -> dict[str, FusedShape]:
    """The tensors of the embedding shard, in file order."""
    table = {
        "embedding": FusedShape((model.vocab_size,), model.hidden_size),
        "norm": FusedShape((model.hidden_size,), None),
    }
    if not model.tied_head:
        table["head"] = FusedShape((model.vocab_size,), model.hidden_size)
    return table


def layer_tensors(model: ModelConfig) -> dict[str, FusedShape]:
    """Every tensor that a layer shard of this model may have, in file order."""
    hidden, ffn = model.hidden_size, model.ffn_size
    q_rows, kv_rows = model.n_heads * model.head_dim, model.n_kv_heads * model.head_dim
    table = {
        "attn_norm": FusedShape((hidden,), None),
        "qkv": FusedShape((q_rows, kv_rows, kv_rows), hidden),
        "qkv_bias": FusedShape((q_rows, kv_rows, kv_rows), None),
        "q_norm": FusedShape((model.head_dim,), None),
        "k_norm": FusedShape((model.head_dim,), None),
        "attn_out": FusedShape((hidden,), q_rows),
        "attn_out_bias": FusedShape((hidden,), None),
        "ffn_norm": FusedShape((hidden,), None),
        "gate_up": FusedShape((ffn, ffn), hidden),
        "gate_up_bias": FusedShape((ffn, ffn), None),
        "down": FusedShape((hidden,), ffn),
        "down_bias": FusedShape((hidden,), None),
    }
    if model.family != "qwen3":
        for name in HEAD_NORMS:
            del table[name]
    return table


def required_layer_tensors(model: ModelConfig) -> frozenset[str]:
    """The tensors without which a layer shard of this model is incomplete."""
    optional = BIASES - {"qkv_bias"} if model.family == "qwen2" else BIASES
    return frozenset(layer_tensors(model)) - optional
