# SPDX-License-Identifier: Apache-2.0
"""Rotary positions: the angle by which a query or key is turned at each position.

Source: RoFormer (arXiv:2104.09864), section 3.2.2; scaled kinds as in transformers' `modeling_rope_utils.py`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from quickthaw.layers.architecture import Rope

if TYPE_CHECKING:
    from quickthaw.layers.arrays import Array


class Rotation:
    """The rotation of a model's heads; `at` gives it for a run of positions."""

    def __init__(self, rope: Rope, head_dim: int) -> None:
        self._rope = rope
        self._head_dim = head_dim
        self._frequencies = _frequencies(rope, head_dim)

    def at(self, start: int, end: int, n_positions: int) -> tuple[Array, Array]:
        """Positions start to end of a sequence that has n_positions by now: dynamic scaling depends on it.

        Shapes: cosines and sines, each (end - start, 1, head_dim / 2) f32, to broadcast over heads.
        """
        frequencies = self._frequencies
        if self._rope.kind == "dynamic" and n_positions > self._rope.original_positions:
            theta = _stretched_theta(self._rope, self._head_dim, n_positions)
            frequencies = _inverse(theta, self._head_dim)
        positions = np.arange(start, end, dtype=np.float32)
        angles = (positions[:, None] * frequencies)[:, None, :]
        return np.cos(angles), np.sin(angles)


def rotate(heads: Array, cosines: Array, sines: Array) -> Array:
    """Turns each pair (i, i + head_dim / 2) of every head. Shapes: heads (n_tokens, n_heads, head_dim)."""
    half = heads.shape[-1] // 2
    first, second = heads[..., :half], heads[..., half:]
    turned = np.empty_like(heads)
    turned[..., :half] = first * cosines - second * sines
    turned[..., half:] = second * cosines + first * sines
    return turned


def _frequencies(rope: Rope, head_dim: int) -> Array:
    frequencies = _inverse(rope.theta, head_dim)
    if rope.kind == "linear":
        return (frequencies / rope.factor).astype(np.float32)
    if rope.kind == "factors":
        return (frequencies / rope.frequency_factors).astype(np.float32)
    if rope.kind == "llama3":
        return _llama3(rope, frequencies)
    return frequencies


def _inverse(theta: float, head_dim: int) -> Array:
    exponents = np.arange(0, head_dim, 2, dtype=np.float32) / np.float32(head_dim)
    return (theta**-exponents).astype(np.float32)


def _stretched_theta(rope: Rope, head_dim: int, n_positions: int) -> float:
    """NTK-aware scaling: theta grows with the length of the sequence, once it exceeds the trained one."""
    stretch = rope.factor * n_positions / rope.original_positions - (rope.factor - 1)
    return float(rope.theta * stretch ** (head_dim / (head_dim - 2)))


def _llama3(rope: Rope, frequencies: Array) -> Array:
    """Long wavelengths are stretched by `factor`, short ones kept, those between blended."""
    wavelengths = 2 * math.pi / frequencies
    turns = rope.original_positions / wavelengths
    blend = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
    kept = np.clip(blend, 0, 1)
    return ((1 - kept) * frequencies / rope.factor + kept * frequencies).astype(np.float32)
