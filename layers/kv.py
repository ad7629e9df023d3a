# SPDX-License-Identifier: Apache-2.0
"""The KV cache: the keys and values of the tokens a sequence has so far, f32.

One array for each layer and kind, laid out so that the keys of one head are one contiguous matrix:

    keys[layer], values[layer]   (n_kv_heads, capacity, head_dim)
                                              └── positions 0 … n_tokens-1 are filled
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from quickthaw.layers.architecture import ModelConfig

if TYPE_CHECKING:
    from quickthaw.layers.arrays import Array

# Room is made in blocks, and doubled when it runs out: a long answer copies its cache only a few times.
_BLOCK_TOKENS = 64


class KeyValueCache:
    """The cache of one sequence; `n_tokens` counts what is in it."""

    def __init__(self, model: ModelConfig) -> None:
        self.n_tokens = 0
        self._shape = (model.n_kv_heads, 0, model.head_dim)
        self.keys = [np.empty(self._shape, np.float32) for _ in range(model.n_layers)]
        self.values = [np.empty(self._shape, np.float32) for _ in range(model.n_layers)]

    @property
    def capacity(self) -> int:
        """Tokens there is room for."""
        return self.keys[0].shape[1]

    @property
    def size_bytes(self) -> int:
        """Memory of all keys and values there is room for."""
        return 2 * len(self.keys) * self.keys[0].nbytes

    def reserve(self, n_tokens: int) -> None:
        """Make room for n_tokens in all; what is filled stays."""
        if n_tokens <= self.capacity:
            return
        n_blocks = -(-max(n_tokens, 2 * self.capacity) // _BLOCK_TOKENS)
        for arrays in (self.keys, self.values):
            for layer, filled in enumerate(arrays):
                arrays[layer] = self._grown(filled, n_blocks * _BLOCK_TOKENS)

    def store(self, layer: int, keys: Array, values: Array) -> None:
        """Put what follows position n_tokens; it counts once `n_tokens` is moved on, after the last layer.

        Shapes: keys and values (n_new, n_kv_heads, head_dim).
        """
        end = self.n_tokens + len(keys)
        self.keys[layer][:, self.n_tokens : end] = keys.swapaxes(0, 1)
        self.values[layer][:, self.n_tokens : end] = values.swapaxes(0, 1)

    def _grown(self, filled: Array, capacity: int) -> Array:
        n_kv_heads, _, head_dim = self._shape
        grown = np.empty((n_kv_heads, capacity, head_dim), np.float32)
        grown[:, : self.n_tokens] = filled[:, : self.n_tokens]
        return grown
