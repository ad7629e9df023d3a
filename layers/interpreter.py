# SPDX-License-Identifier: Apache-2.0
"""The forward pass in numpy: f32 arithmetic on the mapped weights, from token ids to logits.

Llama's decoder (arXiv:2307.09288, section 2.2) and what Mistral, Qwen2 and Qwen3 change in it. It needs
nothing but numpy, so it answers first, and it asks for a layer's shard when it has come to that layer.

Shape letters: m new tokens, t tokens a query may see, d head_dim, h hidden_size, q n_heads, k n_kv_heads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from quickthaw.layers.architecture import ModelConfig
from quickthaw.layers.crew import Crew, Piece, pieces
from quickthaw.layers.embedding import rows
from quickthaw.layers.kv import KeyValueCache, Turn
from quickthaw.layers.mask import first_seen, mask
from quickthaw.layers.matrix import matrix_of
from quickthaw.layers.product import Product
from quickthaw.layers.rope import Rotation, rotate
from quickthaw.layers.shard import Shard
from quickthaw.layers.shard_set import ShardSet

if TYPE_CHECKING:
    from quickthaw.layers.arrays import Array

# A prompt goes through in chunks, so that its activations and scores stay small however long it is.
_MAX_CHUNK_TOKENS = 128
# Scores a piece of attention must have before another thread is worth waking for it.
_PIECE_SCORES = 1 << 15


class Interpreter:
    """Computes one sequence, or one step of several, from a shard set; holds no weights of its own.

    `before_layer` is called before each layer, once for each chunk of a prompt; what it raises ends the pass.
    """

    name = "interpreter"
    before_layer: Callable[[], object]

    def __init__(self, shards: ShardSet, n_threads: int) -> None:
        self._shards = shards
        self._model: ModelConfig = shards.manifest.model
        self._crew = Crew(n_threads)
        self._product = Product(self._crew)
        self._rotation = Rotation(self._model.rope, self._model.head_dim)
        self.before_layer = _do_nothing

    def forward(self, token_ids: Sequence[int], cache: KeyValueCache) -> Array:
        """Run the tokens after those in the cache, which takes them in. At least one.

        Shapes: the logits of the token after the last, (vocab,) f32.
        Raises: ShardError, and what `before_layer` does; the cache is then as it was.
        """
        before = cache.n_tokens
        cache.reserve(before + len(token_ids))
        try:
            for start in range(0, len(token_ids), _MAX_CHUNK_TOKENS):
                hidden = self._decode([(token_ids[start : start + _MAX_CHUNK_TOKENS], cache)])
        except BaseException:
            cache.rewind(before)
            raise
        with self._shards.spans.timed("head"):
            logits: Array = self._head(hidden)[0]
        return logits

    def step(self, turns: Sequence[Turn]) -> Array:
        """Run the next tokens of several sequences, each weight being read once for all of them.

        Shapes: the logits after each sequence's last token, (n_turns, vocab) f32.
        Raises: ShardError, and what `before_layer` does; the caches are then as they were.
        """
        for token_ids, cache in turns:
            cache.reserve(cache.n_tokens + len(token_ids))
        hidden = self._decode(turns)
        with self._shards.spans.timed("head"):
            return np.ascontiguousarray(self._head(hidden))

    def release(self) -> None:
        """End the threads that compute, until they are needed again."""
        self._crew.release()

    def _decode(self, turns: Sequence[Turn]) -> Array:
        """The hidden state of each turn's last token."""
        token_ids = [token_id for ids, _ in turns for token_id in ids]
        # Tokens side by side in memory, as Product gives them back: what is added to hidden lies as it does.
        hidden = np.asfortranarray(rows(self._shards.embedding, token_ids))  # (m, h)
        rotation = self._rotations(turns)
        # A gate far below zero overflows exp on its way to the right answer, 0.
        with np.errstate(over="ignore"):
            for index in range(self._model.n_layers):
                self.before_layer()
                shard = self._shards.layer(index)
                with self._shards.spans.timed(f"{shard.name} compute"):
                    hidden += self._attention(index, shard, hidden, rotation, turns)
                    if index == self._model.n_layers - 1:
                        hidden = _last_rows(hidden, turns)  # from here on nothing is asked of the others
                    hidden += self._feed_forward(shard, hidden)
        for ids, cache in turns:
            cache.take(ids)
        return hidden

    def _rotations(self, turns: Sequence[Turn]) -> tuple[Array, Array]:
        parts = [
            self._rotation.at(cache.n_tokens, cache.n_tokens + len(ids), cache.n_positions)
            for ids, cache in turns
        ]
        cosines, sines = zip(*parts, strict=True)
        return np.concatenate(cosines), np.concatenate(sines)

    def _attention(
        self, index: int, shard: Shard, hidden: Array, rotation: tuple[Array, Array], turns: Sequence[Turn]
    ) -> Array:
        model = self._model
        normed = self._norm(hidden, shard.tensor("attn_norm"))  # (m, h)
        qkv = np.ascontiguousarray(self._linear(normed, shard, "qkv"))
        heads = qkv.reshape(len(hidden), -1, model.head_dim)  # (m, q + 2k, d)
        queries, keys, values = np.split(heads, (model.n_heads, model.n_heads + model.n_kv_heads), axis=1)
        if shard.has("q_norm"):
            queries = self._norm(queries, shard.tensor("q_norm"))
            keys = self._norm(keys, shard.tensor("k_norm"))
        queries, keys = rotate(queries, *rotation), rotate(keys, *rotation)
        queries *= np.float32(model.head_dim**-0.5)
        mixed = np.empty(
            (len(hidden), model.n_kv_heads, model.n_heads // model.n_kv_heads, model.head_dim), np.float32
        )
        begin = 0
        for token_ids, cache in turns:  # a sequence sees no other
            own = slice(begin, begin + len(token_ids))
            cache.store(index, keys[own], values[own])
            self._mix(index, queries[own], cache, mixed[own])
            begin += len(token_ids)
        return self._linear(mixed.reshape(len(hidden), -1), shard, "attn_out")

    def _mix(self, index: int, queries: Array, cache: KeyValueCache, mixed: Array) -> None:
        """Each query's average of the values it may see, weighted by softmax(query · key / √d).

        Shapes: queries (m, q, d), divided by √d already; mixed (m, k, q / k, d), which is written.
        """
        model, m = self._model, len(queries)
        start, end = cache.n_tokens, cache.n_tokens + m
        window = model.windows[index]
        first = first_seen(start, window)
        keys, values = cache.keys[index][:, first:end], cache.values[index][:, first:end]  # (k, t, d)
        seen = mask(start, end, first, window) if m > 1 else None  # (m, t); a single query sees them all
        grouped = queries.reshape(m, model.n_kv_heads, -1, model.head_dim).transpose(1, 2, 0, 3)

        def attend(_lane: int, piece: Piece) -> None:
            heads = slice(*piece)
            scores = grouped[heads] @ keys[heads, None].swapaxes(2, 3)  # (k, q / k, m, t)
            if seen is not None:
                scores += seen
            scores -= scores.max(axis=-1, keepdims=True)
            np.exp(scores, out=scores)
            scores /= scores.sum(axis=-1, keepdims=True)
            mixed[:, heads] = (scores @ values[heads, None]).transpose(2, 0, 1, 3)

        n_scores = model.n_heads // model.n_kv_heads * m * (end - first)  # of one key-value head
        self._crew.run(attend, pieces(model.n_kv_heads, -(-_PIECE_SCORES // n_scores)))

    def _feed_forward(self, shard: Shard, hidden: Array) -> Array:
        normed = self._norm(hidden, shard.tensor("ffn_norm"))
        gate, up = np.split(self._linear(normed, shard, "gate_up"), 2, axis=1)
        return self._linear(_gated(gate, up), shard, "down")

    def _head(self, hidden: Array) -> Array:
        embedding = self._shards.embedding
        normed = self._norm(hidden, embedding.tensor("norm"))
        matrix = matrix_of(embedding, "head" if embedding.has("head") else "embedding")
        parts = [self._product(normed, tile) for tile in self._shards.tiles(matrix)]
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)

    def _linear(self, x: Array, shard: Shard, name: str) -> Array:
        out = self._product(x, matrix_of(shard, name))
        if shard.has(f"{name}_bias"):
            out += shard.tensor(f"{name}_bias")
        return out

    def _norm(self, x: Array, weight: Array) -> Array:
        """RMSNorm (arXiv:1910.07467) over the last axis."""
        mean_square = np.square(x).mean(axis=-1, keepdims=True)
        normed: Array = x / np.sqrt(mean_square + np.float32(self._model.norm_eps)) * weight
        return normed


def _do_nothing() -> None:
    pass


def _last_rows(hidden: Array, turns: Sequence[Turn]) -> Array:
    """The row of each turn's last token."""
    ends = np.cumsum([len(token_ids) for token_ids, _ in turns])
    last: Array = hidden[ends - 1]
    return last


def _gated(gate: Array, up: Array) -> Array:
    """SwiGLU (arXiv:2002.05202): silu(gate) * up. In one array: 3 times as fast as written out."""
    gated = np.negative(gate)
    np.exp(gated, out=gated)
    gated += 1
    np.divide(gate, gated, out=gated)
    gated *= up
    return gated
