# SPDX-License-Identifier: Apache-2.0
"""Keys and values as bytes, for another process that serves the same shards.

    token_ids   n_tokens × u32
    kv          for each layer its keys, then its values: (n_kv_heads, n_tokens, head_dim) f32

all little-endian, C order.
"""

from __future__ import annotations

import json

import numpy as np

from quickthaw.layers.architecture import ModelConfig
from quickthaw.layers.kv import KeyValueCache
from quickthaw.layers.manifest import Manifest

_LAYOUT = "1"


def fingerprint(manifest: Manifest) -> dict[str, str]:
    """What keys and values depend on, beside their tokens: this layout, the model's numbers, every weight."""
    return {
        "layout": _LAYOUT,
        "dtype": manifest.dtype,
        "model": json.dumps(manifest.model.to_json(), separators=(",", ":")),
        "shards": " ".join([shard.sha256 for shard in manifest.shards]),
    }


def dump(cache: KeyValueCache) -> dict[str, bytes]:
    """The sections of what is in a cache."""
    arrays = [
        array[:, : cache.n_tokens] for pair in zip(cache.keys, cache.values, strict=True) for array in pair
    ]
    kv = b"".join([np.ascontiguousarray(array, "<f4").tobytes() for array in arrays])
    return {"token_ids": np.asarray(cache.token_ids, "<u4").tobytes(), "kv": kv}


def token_ids(data: memoryview) -> list[int]:
    """The section of that name."""
    ids: list[int] = np.frombuffer(data, "<u4").tolist()
    return ids


def load(data: memoryview, model: ModelConfig, ids: list[int], n_tokens: int, cache: KeyValueCache) -> None:
    """The first n_tokens of `ids`, whose section `kv` is `data`, into an empty cache.

    Raises: ValueError when the section is not theirs.
    """
    shape = model.n_layers, 2, model.n_kv_heads, len(ids), model.head_dim
    saved = np.frombuffer(data, "<f4").reshape(shape)[..., :n_tokens, :]
    cache.reserve(n_tokens)
    for layer, (keys, values) in enumerate(saved):
        cache.keys[layer][:, :n_tokens] = keys
        cache.values[layer][:, :n_tokens] = values
    cache.take(ids[:n_tokens])
