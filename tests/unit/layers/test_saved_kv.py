# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from quickthaw.layers import saved_kv
from quickthaw.layers.kv import KeyValueCache
from tests import models

MODEL = models.model_config(models.config("llama"))
IDS = [7, 8, 9]


def filled() -> KeyValueCache:
    cache, random = KeyValueCache(MODEL), np.random.default_rng(0)
    cache.reserve(len(IDS))
    for layer in range(MODEL.n_layers):
        keys, values = random.standard_normal((2, len(IDS), MODEL.n_kv_heads, MODEL.head_dim), np.float32)
        cache.store(layer, keys, values)
    cache.take(IDS)
    return cache


@pytest.mark.parametrize("n_tokens", [3, 2, 0])
def test_what_is_dumped_is_loaded_as_far_as_is_wanted(n_tokens: int) -> None:
    source, cache = filled(), KeyValueCache(MODEL)
    sections = {name: memoryview(data) for name, data in saved_kv.dump(source).items()}
    ids = saved_kv.token_ids(sections["token_ids"])
    saved_kv.load(sections["kv"], MODEL, ids, n_tokens, cache)
    assert (ids, cache.token_ids) == (IDS, IDS[:n_tokens])
    for ours, theirs in zip(cache.keys + cache.values, source.keys + source.values, strict=True):
        np.testing.assert_array_equal(ours[:, :n_tokens], theirs[:, :n_tokens])


def test_the_layout_is_the_documented_one() -> None:
    source = filled()
    sections = saved_kv.dump(source)
    assert sections["token_ids"] == bytes([7, 0, 0, 0, 8, 0, 0, 0, 9, 0, 0, 0])
    arrays = [
        array[:, :3].tobytes() for layer in zip(source.keys, source.values, strict=True) for array in layer
    ]
    assert sections["kv"] == b"".join(arrays)


def test_a_section_of_another_size_is_refused() -> None:
    kv = saved_kv.dump(filled())["kv"]
    with pytest.raises(ValueError, match="reshape"):
        saved_kv.load(memoryview(kv)[:-4], MODEL, IDS, 3, KeyValueCache(MODEL))
