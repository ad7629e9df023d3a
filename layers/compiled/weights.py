# SPDX-License-Identifier: Apache-2.0
"""A shard's tensors as torch sees them: views of the mapping, so that nothing is copied."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import linear

from quickthaw.layers.shard import Shard

if TYPE_CHECKING:
    import numpy.typing as npt


class Linear:
    """x → x @ weight.T + bias, in the weight's own dtype."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._weight = weight
        self._bias = bias

    def __call__(self, x: Tensor) -> Tensor:
        """Shapes: x (m, n_in), of the weight's dtype; result (m, n_out)."""
        out = linear(x, self._weight)
        return out if self._bias is None else out.add_(self._bias)


class Layer(NamedTuple):
    """What one layer computes with."""

    attn_norm: Tensor
    qkv: Linear
    q_norm: Tensor | None
    k_norm: Tensor | None
    attn_out: Linear
    ffn_norm: Tensor
    gate_up: Linear
    down: Linear


def layer_of(shard: Shard) -> Layer:
    """The tensors of a layer's shard, which must be READY. Raises: ShardError."""
    return Layer(
        attn_norm=view(shard.tensor("attn_norm")),
        qkv=linear_of(shard, "qkv"),
        q_norm=view(shard.tensor("q_norm")) if shard.has("q_norm") else None,
        k_norm=view(shard.tensor("k_norm")) if shard.has("k_norm") else None,
        attn_out=linear_of(shard, "attn_out"),
        ffn_norm=view(shard.tensor("ffn_norm")),
        gate_up=linear_of(shard, "gate_up"),
        down=linear_of(shard, "down"),
    )


def linear_of(shard: Shard, name: str) -> Linear:
    """The product with one of its matrices."""
    bias = view(shard.tensor(f"{name}_bias")) if shard.has(f"{name}_bias") else None
    return Linear(view(shard.tensor(name)), bias)


def view(array: npt.NDArray[Any]) -> Tensor:
    """The same memory; 16 bits are those of bf16."""
    with warnings.catch_warnings():
        # That a tensor over memory that is mapped read-only must not be written: none is.
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        tensor = torch.from_numpy(array)
    return tensor.view(torch.bfloat16) if array.dtype == np.uint16 else tensor
