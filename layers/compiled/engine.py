# SPDX-License-Identifier: Apache-2.0
"""The forward pass in torch: what the interpreter computes, for many sequences at once, at the memory's pace.

Importing this imports torch, so nothing does while somebody waits. Matrices are multiplied in the dtype they
are stored in; what is added up over the layers, and attention with its keys and values, stays f32: a
sequence may go on from one engine to the other.

Shape letters: n sequences, m new tokens of all of them, t tokens a query may see, d head_dim, h hidden_size,
q n_heads, k n_kv_heads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention, silu

from quickthaw.layers.compiled.packing import PackingCache
from quickthaw.layers.compiled.view import view
from quickthaw.layers.compiled.weights import Layer, Product, layer_of, product_of
from quickthaw.layers.embedding import rows
from quickthaw.layers.kv import KeyValueCache
from quickthaw.layers.mask import first_seen, mask
from quickthaw.layers.rope import Rotation
from quickthaw.layers.shard_set import ShardSet

if TYPE_CHECKING:
    from quickthaw.layers.arrays import Array

# A prompt goes through in chunks, so that its activations and scores stay small however long it is.
_MAX_CHUNK_TOKENS = 512

NewTokens = tuple[Sequence[int], KeyValueCache]


class _Turn(NamedTuple):
    """Cosines and sines of each token's position, laid out for `_rotated`. Shapes: (m, 1, d)."""

    cosines: Tensor
    sines: Tensor


class Compiled:
    """Computes with a shard set; keeps views of what it maps, and of its own no weights but packed int4.

    `before_layer` is called before each layer, once for each chunk of a prompt; what it raises ends the pass.
    """

    name = "compiled"
    before_layer: Callable[[], object]

    def __init__(self, shards: ShardSet, n_threads: int, cache: str | None = None) -> None:
        """`n_threads` are torch's own, so those of the whole process; packed weights are kept in `cache`."""
        self.spread(n_threads)
        self._shards = shards
        self._model = shards.manifest.model
        self._dtype = torch.float32 if shards.manifest.dtype == "f32" else torch.bfloat16
        self._rotation = Rotation(self._model.rope, self._model.head_dim)
        self._layers: dict[int, tuple[Array, Layer]] = {}
        self._packing = PackingCache(cache)
        self._head: tuple[Array, Product] | None = None
        self.before_layer = _do_nothing

    def forward(self, token_ids: Sequence[int], cache: KeyValueCache) -> Array:
        """Run the tokens after those in the cache, which takes them in. At least one.

        Shapes: the logits of the token after the last, (vocab,) f32.
        Raises: ShardError, and what `before_layer` does; the cache is then as it was.
        """
        logits: Array = self.step([(token_ids, cache)])[0]
        return logits

    def step(self, sequences: Sequence[NewTokens]) -> Array:
        """Run each sequence's new tokens, at least one, after those in its own cache, which takes them in.

        The tokens of all go through each matrix together, and attention is each sequence's own: what a
        sequence gets depends on no other, but for the rounding of sums.

        Shapes: the logits of the token after each sequence's last, (n, vocab) f32.
        Raises: ShardError, and what `before_layer` does; every cache is then as it was.
        """
        before = [cache.n_tokens for _, cache in sequences]
        ends = [n + len(token_ids) for n, (token_ids, _) in zip(before, sequences, strict=True)]
        try:
            for (_, cache), end in zip(sequences, ends, strict=True):
                cache.reserve(end)
            with torch.inference_mode():
                hidden = self._decode([self._last_chunk(*each) for each in sequences], ends)
                with self._shards.spans.timed("head"):
                    logits: Array = self._logits(hidden).numpy()
        except BaseException:
            for (_, cache), n_tokens in zip(sequences, before, strict=True):
                cache.rewind(n_tokens)
            raise
        return logits

    def spread(self, n_threads: int) -> None:
        """Compute on so many threads. One until a fork: GNU OpenMP does not survive one with more."""
        torch.set_num_threads(n_threads)

    def release(self) -> None:
        """There is nothing to end: torch's threads are the process's."""

    def _last_chunk(self, token_ids: Sequence[int], cache: KeyValueCache) -> NewTokens:
        """What is left of a long prompt once all before its last chunk has gone through by itself."""
        end = cache.n_tokens + len(token_ids)
        while len(token_ids) > _MAX_CHUNK_TOKENS:
            self._decode([(token_ids[:_MAX_CHUNK_TOKENS], cache)], [end])
            token_ids = token_ids[_MAX_CHUNK_TOKENS:]
        return token_ids, cache

    def _decode(self, sequences: Sequence[NewTokens], ends: Sequence[int]) -> Tensor:
        """Shapes: what the layers make of each sequence's last token, (n, h)."""
        token_ids = [token_id for ids, _ in sequences for token_id in ids]
        hidden = torch.from_numpy(rows(self._shards.embedding, token_ids))  # (m, h)
        turn = self._turn(sequences, ends)
        last_rows = np.cumsum([len(ids) for ids, _ in sequences]) - 1
        for index in range(self._model.n_layers):
            self.before_layer()
            layer, name = self._layer(index)
            with self._shards.spans.timed(f"{name} compute"):
                hidden += self._attention(index, layer, hidden, turn, sequences)
                if index == self._model.n_layers - 1:
                    hidden = hidden[last_rows]  # beyond this point nothing is asked of the tokens before
                hidden += self._feed_forward(layer, hidden)
        for ids, cache in sequences:
            cache.take(ids)
        return hidden

    def _layer(self, index: int) -> tuple[Layer, str]:
        shard = self._shards.layer(index)
        source, layer = self._layers.get(index, (None, None))
        if layer is None or source is not shard.tensor("attn_norm"):  # the first time, or it was mapped anew
            layer = layer_of(shard, self._shards.manifest.shards[1 + index].sha256, self._packing)
            self._layers[index] = shard.tensor("attn_norm"), layer
        return layer, shard.name

    def _turn(self, sequences: Sequence[NewTokens], ends: Sequence[int]) -> _Turn:
        angles = [
            self._rotation.at(cache.n_tokens, cache.n_tokens + len(ids), end)
            for (ids, cache), end in zip(sequences, ends, strict=True)
        ]
        cosines, sines = (np.concatenate(each) for each in zip(*angles, strict=True))
        return _Turn(
            torch.from_numpy(np.concatenate((cosines, cosines), axis=-1)),
            torch.from_numpy(np.concatenate((-sines, sines), axis=-1)),
        )

    def _attention(
        self, index: int, layer: Layer, hidden: Tensor, turn: _Turn, sequences: Sequence[NewTokens]
    ) -> Tensor:
        model = self._model
        heads = layer.qkv(self._norm(hidden, layer.attn_norm)).float()
        heads = heads.view(len(hidden), -1, model.head_dim)  # (m, q + 2k, d)
        n_turned = model.n_heads + model.n_kv_heads
        turned, values = heads[:, :n_turned], heads[:, n_turned:].numpy()
        if layer.q_norm is not None and layer.k_norm is not None:
            queries, keys = turned[:, : model.n_heads], turned[:, model.n_heads :]
            turned = torch.cat((self._normed(queries, layer.q_norm), self._normed(keys, layer.k_norm)), 1)
        turned = _rotated(turned, turn)
        queries, keys = turned[:, : model.n_heads], turned[:, model.n_heads :].numpy()
        mixed, begin = [], 0
        for ids, cache in sequences:
            own = slice(begin, begin + len(ids))
            cache.store(index, keys[own], values[own])
            mixed.append(self._mix(index, queries[own], cache))
            begin += len(ids)
        return layer.attn_out((mixed[0] if len(mixed) == 1 else torch.cat(mixed)).to(self._dtype))

    def _mix(self, index: int, queries: Tensor, cache: KeyValueCache) -> Tensor:
        """Each query's average of the values it may see, weighted by softmax(query · key / √d).

        Shapes: queries (m, q, d) of one sequence; result (m, q * d).
        """
        m, window = len(queries), self._model.windows[index]
        start, end = cache.n_tokens, cache.n_tokens + m
        first = first_seen(start, window)
        keys, values = cache.keys[index][:, first:end], cache.values[index][:, first:end]  # (k, t, d)
        if m == 1:
            return torch.from_numpy(self._mix_one(queries.numpy(), keys, values))
        seen = torch.from_numpy(mask(start, end, first, window))
        mixed = scaled_dot_product_attention(
            queries.transpose(0, 1)[None],
            torch.from_numpy(keys)[None],
            torch.from_numpy(values)[None],
            attn_mask=seen,
            enable_gqa=True,
        )
        return mixed[0].transpose(0, 1).reshape(m, -1)

    def _mix_one(self, query: Array, keys: Array, values: Array) -> Array:
        """For one query, in numpy: torch waits for its threads three times, which may be long."""
        model = self._model
        scores = query.reshape(model.n_kv_heads, -1, model.head_dim) @ keys.swapaxes(1, 2)  # (k, q / k, t)
        scores *= np.float32(model.head_dim**-0.5)
        scores -= scores.max(axis=-1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=-1, keepdims=True)
        mixed: Array = (scores @ values).reshape(1, -1).astype(np.float32, copy=False)
        return mixed

    def _feed_forward(self, layer: Layer, hidden: Tensor) -> Tensor:
        gate, up = layer.gate_up(self._norm(hidden, layer.ffn_norm)).chunk(2, -1)
        return layer.down(silu(gate).mul_(up))  # SwiGLU (arXiv:2002.05202)

    def _logits(self, hidden: Tensor) -> Tensor:
        embedding = self._shards.embedding
        norm = embedding.tensor("norm")
        if self._head is None or self._head[0] is not norm:
            self._head = norm, product_of(embedding, "head" if embedding.has("head") else "embedding")
        return self._head[1](self._norm(hidden, view(norm))).float()

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        """RMSNorm (arXiv:1910.07467), in the dtype that the next product wants."""
        return self._normed(x, weight).to(self._dtype)

    def _normed(self, x: Tensor, weight: Tensor) -> Tensor:
        """By its length, as √(|x|² + nε) is hypot(|x|, √nε): half of what torch's own takes for one row."""
        n = x.shape[-1]
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        return x / length.hypot_(torch.tensor((n * self._model.norm_eps) ** 0.5)) * (weight * n**0.5)


def _rotated(heads: Tensor, turn: _Turn) -> Tensor:
    """Turns each pair (i, i + d / 2) of every head."""
    return torch.addcmul(heads * turn.cosines, heads.roll(heads.shape[-1] // 2, -1), turn.sines)


def _do_nothing() -> None:
    pass
