# SPDX-License-Identifier: Apache-2.0
"""The KV cache: the keys and values of the tokens a sequence has so far, f32.

One array for each layer and kind, laid out so that the keys of one head are one contiguous matrix:

    keys[layer], values[layer]   (n_kv_heads, capacity, head_dim)
                                              └── positions 0 … n_tokens-1 are filled

A layer with a window keeps every position and masks what is out of it, so whichever layers a model has, the
first n positions are what any sequence that begins with the same n tokens would compute.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from quickthaw.layers.architecture import ModelConfig

if TYPE_CHECKING:
    from quickthaw.layers.arrays import Array

# Room is made in blocks, and doubled when it runs out: a long answer copies its cache only a few times.
_BLOCK_TOKENS = 64


class KeyValueCache:
    """The cache of one sequence, and the ids of the tokens that are in it."""

    def __init__(self, model: ModelConfig) -> None:
        self.token_ids: list[int] = []
        self.n_positions = 0  # it was reserved for: with dynamic scaling, what a key's angle depends on
        self._model = model
        self.keys: list[Array] = [self._room(0) for _ in range(model.n_layers)]
        self.values: list[Array] = [self._room(0) for _ in range(model.n_layers)]

    @property
    def n_tokens(self) -> int:
        """Tokens that are in it."""
        return len(self.token_ids)

    @property
    def capacity(self) -> int:
        """Tokens there is room for."""
        # The smallest: memory may have run out between two of them.
        return min([len(array[0]) for array in (*self.keys, *self.values)])

    @property
    def size_bytes(self) -> int:
        """Memory of all keys and values there is room for."""
        return sum([array.nbytes for array in (*self.keys, *self.values)])

    def reserve(self, n_tokens: int) -> None:
        """Make room for n_tokens in all; what is filled stays."""
        self.n_positions = max(n_tokens, self.n_positions)
        if n_tokens > self.capacity:
            self._move(max(n_tokens, 2 * self.capacity))

    def store(self, layer: int, keys: Array, values: Array) -> None:
        """Put what follows position n_tokens; it counts once `take` was called, after the last layer.

        Shapes: keys and values (n_new, n_kv_heads, head_dim).
        """
        end = self.n_tokens + len(keys)
        self.keys[layer][:, self.n_tokens : end] = keys.swapaxes(0, 1)
        self.values[layer][:, self.n_tokens : end] = values.swapaxes(0, 1)

    def take(self, token_ids: Sequence[int]) -> None:
        """Every layer has stored these tokens."""
        self.token_ids += token_ids

    def rewind(self, n_tokens: int) -> None:
        """Go on from the first n_tokens, as if no others had come."""
        del self.token_ids[n_tokens:]
        self.n_positions = self.n_tokens

    def shrink(self, n_tokens: int) -> None:
        """Hold no more than n_tokens, and give back the room of what is too much."""
        self.rewind(n_tokens)
        if self.capacity > _whole_blocks(n_tokens):
            self._move(self.n_tokens)

    def n_shared(self, token_ids: Sequence[int]) -> int:
        """How many of these, from the first on, need not be computed."""
        return n_shared(self._model, self.token_ids, token_ids)

    def copy(self) -> KeyValueCache:
        """Another sequence that goes on from the same tokens."""
        twin = KeyValueCache(self._model)
        twin.keys, twin.values = list(self.keys), list(self.values)
        twin.take(self.token_ids)
        twin._move(self.capacity)
        return twin

    def _move(self, capacity: int) -> None:
        """What is filled, into arrays with room for that many tokens."""
        for arrays in (self.keys, self.values):
            for layer, filled in enumerate(arrays):
                arrays[layer] = self._room(_whole_blocks(capacity))
                arrays[layer][:, : self.n_tokens] = filled[:, : self.n_tokens]

    def _room(self, n_tokens: int) -> Array:
        return np.empty((self._model.n_kv_heads, n_tokens, self._model.head_dim), np.float32)


Turn = tuple[Sequence[int], KeyValueCache]  # the tokens that come next in a sequence, and what came before


def n_shared(model: ModelConfig, known: Sequence[int], token_ids: Sequence[int]) -> int:
    """How many tokens both begin with, as far as their keys and values are the same as well.

    With dynamic scaling a key is turned by an angle that depends on the length of the whole prompt.
    """
    if model.rope.kind == "dynamic":
        return 0
    pairs = enumerate(zip(known, token_ids, strict=False))
    return next((n for n, (ours, theirs) in pairs if ours != theirs), min(len(known), len(token_ids)))


def _whole_blocks(n_tokens: int) -> int:
    return -(-n_tokens // _BLOCK_TOKENS) * _BLOCK_TOKENS
