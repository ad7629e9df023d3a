# SPDX-License-Identifier: Apache-2.0
"""What a shard's tensors are to the compiled engine: views of the mapping, and for int4 packed matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from quickthaw.layers.compiled.linear import Biased, Int4Linear, Int8Linear, Linear, Packed
from quickthaw.layers.compiled.packing import PackingCache
from quickthaw.layers.compiled.view import view
from quickthaw.layers.matrix import Int4, Int8, matrix_of
from quickthaw.layers.shard import Shard

Product = Callable[[Tensor], Tensor]

_MATRICES = ("qkv", "attn_out", "gate_up", "down")


class Layer(NamedTuple):
    """What one layer computes with."""

    qkv: Product
    attn_out: Product
    gate_up: Product
    down: Product
    attn_norm: Tensor
    ffn_norm: Tensor
    q_norm: Tensor | None
    k_norm: Tensor | None


def layer_of(shard: Shard, sha256: str, packing: PackingCache) -> Layer:
    """A layer's shard, which must be READY, and its digest. Raises: ShardError."""
    matrices = {name: matrix_of(shard, name) for name in _MATRICES}
    packed = packing.packed(sha256, {name: each for name, each in matrices.items() if isinstance(each, Int4)})
    return Layer(
        **{name: product_of(shard, name, packed.get(name)) for name in _MATRICES},
        attn_norm=view(shard.tensor("attn_norm")),
        ffn_norm=view(shard.tensor("ffn_norm")),
        q_norm=view(shard.tensor("q_norm")) if shard.has("q_norm") else None,
        k_norm=view(shard.tensor("k_norm")) if shard.has("k_norm") else None,
    )


def product_of(shard: Shard, name: str, packed: Packed | None = None) -> Product:
    """What multiplies with one of its matrices, and adds its bias. Raises: ShardError."""
    matrix = matrix_of(shard, name)
    product: Product
    if isinstance(matrix, Int4):
        product = Int4Linear(view(matrix.weight), view(matrix.scale), view(matrix.minimum), packed)
    elif isinstance(matrix, Int8):
        product = Int8Linear(view(matrix.weight), view(matrix.scale))
    else:
        product = Linear(view(matrix))
    bias = f"{name}_bias"
    return Biased(product, view(shard.tensor(bias))) if shard.has(bias) else product
