# SPDX-License-Identifier: Apache-2.0
"""How a pass is broken off; that its logits are right is compared under tests/golden and tests/parity."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from quickthaw.layers.interpreter import Interpreter
from quickthaw.layers.kv import KeyValueCache
from quickthaw.layers.shard_set import ShardSet
from tests import shards


@pytest.fixture
def shard_set(tmp_path: Path) -> Iterator[ShardSet]:
    opened = ShardSet.open(shards.make(tmp_path), shards.config(tmp_path))
    yield opened
    opened.close()


def test_a_long_prompt_may_be_broken_off_before_each_layer_of_each_chunk(shard_set: ShardSet) -> None:
    model = shard_set.manifest.model
    engine, cache = Interpreter(shard_set, n_threads=1), KeyValueCache(model)
    n_calls = 0

    def count() -> None:
        nonlocal n_calls
        n_calls += 1

    engine.before_layer = count
    engine.forward([1] * 300, cache)

    assert n_calls == 3 * model.n_layers


def test_a_pass_that_is_broken_off_leaves_the_cache_as_it_was(shard_set: ShardSet) -> None:
    model = shard_set.manifest.model
    engine, cache, other = Interpreter(shard_set, n_threads=1), KeyValueCache(model), KeyValueCache(model)
    engine.forward([1, 2, 3], cache)
    n_left = model.n_layers + 1  # into the second chunk

    def break_off() -> None:
        nonlocal n_left
        n_left -= 1
        if n_left < 0:
            raise TimeoutError

    engine.before_layer = break_off
    with pytest.raises(TimeoutError):
        engine.forward([4] * 200, cache)
    n_left = 1000

    assert cache.n_tokens == 3
    np.testing.assert_array_equal(engine.forward([5], cache), _logits_after(engine, [1, 2, 3], 5, other))


def _logits_after(engine: Interpreter, prompt: list[int], token_id: int, cache: KeyValueCache) -> object:
    engine.forward(prompt, cache)
    return engine.forward([token_id], cache)
