# SPDX-License-Identifier: Apache-2.0
"""x → x @ weight.T + bias in torch, for each dtype in which a matrix is stored.

A few tokens are multiplied by a kernel that reads the quantised weights. For more of them the weights are
widened to bf16, some rows at a time, and multiplied by oneDNN. Measured for 512 tokens, 3072 x 576 weights in
int8, on 2 cores with AVX-512: 2.2 ms, where the kernel takes 6.1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import linear

# From here on widening pays.
_MIN_WIDENED_TOKENS = 24
_TILE_WEIGHTS = 1 << 22  # 8 MiB of bf16


class Packed(NamedTuple):
    """An int4 matrix as this processor's kernel wants it; see `packing.py`."""

    weight: Tensor  # (n_out, n_in / 2) u8
    scales_and_zeros: Tensor  # (n_groups, n_out, 2) bf16; zero is what the eighth step stands for


class Linear:
    """With the weights as they are, in f32 or bf16."""

    def __init__(self, weight: Tensor) -> None:
        self._weight = weight

    def __call__(self, x: Tensor) -> Tensor:
        """Shapes: x (m, n_in), of the weight's dtype; result (m, n_out), of the same."""
        return linear(x, self._weight)


class Int8Linear:
    """With the weights where they are mapped: the kernel wants them in rows."""

    def __init__(self, weight: Tensor, scale: Tensor) -> None:
        self._weight = weight
        self._scale = scale.to(torch.bfloat16)  # which they are

    def __call__(self, x: Tensor) -> Tensor:
        """Shapes: x (m, n_in) bf16; result (m, n_out) bf16."""
        if len(x) < _MIN_WIDENED_TOKENS:
            return torch._weight_int8pack_mm(x, self._weight, self._scale)
        return _by_tiles(x, self._weight, lambda rows: self._weight[rows].to(x.dtype)).mul_(self._scale)


class Int4Linear:
    """With packed weights for a few tokens, and with the stored ones for many."""

    def __init__(self, weight: Tensor, scale: Tensor, minimum: Tensor, packed: Packed | None) -> None:
        """`packed` is None where the kernel does not take a matrix of this shape."""
        self._weight = weight
        self._scale = scale[..., None].to(torch.bfloat16)
        # Steps are counted from the eighth, as in the kernel: near zero, where bf16 is fine enough.
        self._middle = zeros(scale, minimum)[..., None].to(torch.bfloat16)
        self._group = 2 * weight.shape[1] // scale.shape[1]
        self._packed = packed

    def __call__(self, x: Tensor) -> Tensor:
        """Shapes: x (m, n_in) bf16; result (m, n_out) bf16."""
        if self._packed is not None and len(x) < 2 * _MIN_WIDENED_TOKENS:
            return torch._weight_int4pack_mm_for_cpu(x, self._packed.weight, self._group, self._packed[1])
        return _by_tiles(torch.cat((x[:, 0::2], x[:, 1::2]), 1), self._weight, self._widened)

    def _widened(self, rows: slice) -> Tensor:
        """Shapes: (n_rows, n_in) bf16, the even columns before the odd ones."""
        scale, middle, pairs = self._scale[rows], self._middle[rows], self._weight[rows]
        wide = torch.empty(2, *pairs.shape, dtype=torch.bfloat16)
        for half, steps in zip(wide, (pairs & 0xF, pairs >> 4), strict=True):
            groups = half.view(*scale.shape[:2], -1)
            groups.copy_(steps.view(groups.shape)).sub_(8)
            torch.addcmul(middle, groups, scale, out=groups)
        return torch.cat((wide[0], wide[1]), 1)


class Biased:
    """Another one, and a bias."""

    def __init__(self, product: Callable[[Tensor], Tensor], bias: Tensor) -> None:
        self._product = product
        self._bias = bias

    def __call__(self, x: Tensor) -> Tensor:
        """Shapes: as the other one's."""
        return self._product(x).add_(self._bias)


def zeros(scale: Tensor, minimum: Tensor) -> Tensor:
    """What the eighth step of each group stands for, in f32."""
    return minimum.float() + 8 * scale.float()


def _by_tiles(x: Tensor, weight: Tensor, widened: Callable[[slice], Tensor]) -> Tensor:
    tile_rows = max(1, _TILE_WEIGHTS // x.shape[1])
    tiles = [
        linear(x, widened(slice(begin, begin + tile_rows))) for begin in range(0, len(weight), tile_rows)
    ]
    return tiles[0] if len(tiles) == 1 else torch.cat(tiles, 1)
