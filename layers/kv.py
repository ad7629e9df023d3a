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
        self._model = model
        self.keys: list[Array] = [self._room(0) for _ in range(model.n_layers)]
        self.values: list[Array] = [self._room(0) for _ in range(model.n_layers)]

    @property
    def capacity(self) -> int:
        """Tokens there is room for."""
        return len(self.keys[0][0])

    @property
    def size_bytes(self) -> int:
        """Memory of all keys and values there is room for."""
        return sum([array.nbytes for array in (*self.keys, *self.values)])

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

    def copy(self) -> KeyValueCache:
        """Another sequence that goes on from the same tokens."""
        twin = KeyValueCache(self._model)
        twin.n_tokens = self.n_tokens
        twin.keys = [keys.copy() for keys in self.keys]
        twin.values = [values.copy() for values in self.values]
        return twin

    def _room(self, n_tokens: int) -> Array:
        return np.empty((self._model.n_kv_heads, n_tokens, self._model.head_dim), np.float32)

    def _grown(self, filled: Array, capacity: int) -> Array:
        grown = self._room(capacity)
        grown[:, : self.n_tokens] = filled[:, : self.n_tokens]
        return grown
