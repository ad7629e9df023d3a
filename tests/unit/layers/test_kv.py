# SPDX-License-Identifier: Apache-2.0
import numpy as np

from quickthaw.layers.kv import KeyValueCache
from tests import models

MODEL = models.model_config(models.config("llama"))


def test_what_is_stored_survives_growth() -> None:
    cache = KeyValueCache(MODEL)
    random = np.random.default_rng(0)
    stored = random.standard_normal((200, MODEL.n_kv_heads, MODEL.head_dim), dtype=np.float32)
    for position in range(200):
        cache.reserve(position + 1)
        cache.store(1, stored[position : position + 1], -stored[position : position + 1])
        cache.n_tokens += 1
    np.testing.assert_array_equal(cache.keys[1][:, :200], stored.swapaxes(0, 1))
    np.testing.assert_array_equal(cache.values[1][:, :200], -stored.swapaxes(0, 1))


def test_room_grows_by_doubling_not_by_token() -> None:
    cache = KeyValueCache(MODEL)
    capacities = set()
    for n_tokens in range(1, 1000):
        cache.reserve(n_tokens)
        assert cache.capacity >= n_tokens
        capacities.add(cache.capacity)
    assert len(capacities) <= 6


def test_its_size_is_that_of_its_arrays() -> None:
    cache = KeyValueCache(MODEL)
    cache.reserve(65)
    assert cache.size_bytes == sum(array.nbytes for array in (*cache.keys, *cache.values)) > 0


def test_an_empty_cache_holds_no_memory() -> None:
    cache = KeyValueCache(MODEL)
    assert (cache.capacity, cache.size_bytes) == (0, 0)


def test_a_copy_goes_its_own_way() -> None:
    cache = KeyValueCache(MODEL)
    ones = np.ones((1, MODEL.n_kv_heads, MODEL.head_dim), np.float32)
    cache.reserve(2)
    cache.store(0, ones, ones)
    cache.n_tokens = 1
    twin = cache.copy()
    assert (twin.n_tokens, twin.capacity) == (1, cache.capacity)
    twin.store(0, 2 * ones, 2 * ones)
    cache.store(0, 3 * ones, 3 * ones)
    assert twin.keys[0][:, :2].max() == twin.values[0][:, :2].max() == 2
    assert cache.keys[0][:, :2].max() == 3
    assert twin.keys[0][0, 0, 0] == 1
