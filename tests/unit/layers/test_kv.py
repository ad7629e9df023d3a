# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

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
        cache.take([position])
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
    cache.take([7])
    twin = cache.copy()
    assert (twin.n_tokens, twin.capacity) == (1, cache.capacity)
    twin.store(0, 2 * ones, 2 * ones)
    cache.store(0, 3 * ones, 3 * ones)
    assert twin.keys[0][:, :2].max() == twin.values[0][:, :2].max() == 2
    assert cache.keys[0][:, :2].max() == 3
    assert twin.keys[0][0, 0, 0] == 1


def test_a_copy_has_the_tokens_and_the_room() -> None:
    cache = KeyValueCache(MODEL)
    cache.reserve(10)
    ones = np.ones((2, MODEL.n_kv_heads, MODEL.head_dim), np.float32)
    cache.store(0, ones, ones)
    cache.take([1, 2])
    twin = cache.copy()
    assert (twin.token_ids, twin.capacity) == ([1, 2], 64)
    assert twin.keys[0][:, :2].max() == twin.values[0][:, :2].max() == 1


# --- what two sequences have in common ---


@pytest.mark.parametrize(
    ("token_ids", "n_shared"),
    [([], 0), ([9], 0), ([1, 2], 2), ([1, 2, 3], 3), ([1, 2, 3, 4], 3), ([1, 9, 3], 1)],
)
def test_what_is_shared_is_the_common_beginning(token_ids: list[int], n_shared: int) -> None:
    cache = KeyValueCache(MODEL)
    cache.take([1, 2, 3])
    assert cache.n_shared(token_ids) == n_shared


def test_nothing_is_shared_where_a_key_depends_on_what_follows() -> None:
    cache = KeyValueCache(models.model_config(models.config("llama-dynamic")))
    cache.take([1, 2, 3])
    assert cache.n_shared([1, 2, 3]) == 0


def test_going_back_forgets_the_others() -> None:
    cache = KeyValueCache(MODEL)
    cache.take([1, 2, 3])
    cache.rewind(1)
    cache.take([4])
    assert (cache.token_ids, cache.n_tokens) == ([1, 4], 2)


def test_shrinking_gives_room_back_and_keeps_the_beginning() -> None:
    cache = KeyValueCache(MODEL)
    cache.reserve(300)
    ones = np.ones((100, MODEL.n_kv_heads, MODEL.head_dim), np.float32)
    cache.store(2, ones, 2 * ones)
    cache.take(range(100))
    cache.shrink(400)
    assert (cache.n_tokens, cache.capacity) == (100, 320)
    cache.shrink(70)
    assert (cache.token_ids, cache.capacity) == ([*range(70)], 128)
    assert cache.keys[2][:, :70].min() == 1
    assert cache.values[2][:, :70].min() == 2
    cache.shrink(0)
    assert cache.size_bytes == 0


def test_memory_that_runs_out_while_room_is_made_leaves_what_there_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cache = KeyValueCache(MODEL)
    n_left = 2
    room = cache._room

    def last_room(n_tokens: int) -> object:
        nonlocal n_left
        n_left -= 1
        if n_left < 0:
            raise MemoryError
        return room(n_tokens)

    monkeypatch.setattr(cache, "_room", last_room)
    with pytest.raises(MemoryError):
        cache.reserve(10)
    assert cache.capacity == 0
    n_left = 1000
    cache.reserve(10)
    assert {array.shape[1] for array in (*cache.keys, *cache.values)} == {64}
