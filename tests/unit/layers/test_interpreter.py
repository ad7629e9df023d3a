# SPDX-License-Identifier: Apache-2.0
"""How a pass is broken off, and that a step of several sequences is what each would be by itself; that logits
are right is compared under tests/golden and tests/parity.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from quickthaw.layers.interpreter import Interpreter
from quickthaw.layers.kv import KeyValueCache
from quickthaw.layers.shard_set import ShardSet
from tests import models, shards


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


# --- several sequences in one step ---


@pytest.mark.parametrize("name", models.CONFIGS)
def test_a_step_gives_each_sequence_what_it_would_get_alone(tmp_path: Path, name: str) -> None:
    random = np.random.default_rng(0)
    known = [random.integers(0, 199, n).tolist() for n in (0, 40, 9, 1)]
    coming = [random.integers(0, 199, n).tolist() for n in (30, 1, 1, 12)]
    opened = ShardSet.open(shards.make(tmp_path, name), shards.config(tmp_path))
    engine, model = Interpreter(opened, n_threads=2), opened.manifest.model

    def caches() -> list[KeyValueCache]:
        found = [KeyValueCache(model) for _ in known]
        for token_ids, cache in zip(known, found, strict=True):
            if token_ids:
                engine.forward(token_ids, cache)
        return found

    alone = [engine.forward(ids, cache) for ids, cache in zip(coming, caches(), strict=True)]
    together = caches()
    logits = engine.step(list(zip(coming, together, strict=True)))

    np.testing.assert_allclose(logits, np.stack(alone), atol=1e-4)
    assert [cache.token_ids for cache in together] == [a + b for a, b in zip(known, coming, strict=True)]
    opened.close()


def test_a_prompt_in_shares_is_what_it_is_at_once(tmp_path: Path) -> None:
    opened = ShardSet.open(shards.make(tmp_path, "llama-dynamic"), shards.config(tmp_path))
    engine, model = Interpreter(opened, n_threads=1), opened.manifest.model
    prompt = np.random.default_rng(1).integers(0, 199, 60).tolist()  # beyond the trained length: keys turn
    at_once, in_shares = KeyValueCache(model), KeyValueCache(model)
    in_shares.reserve(len(prompt))
    for begin in range(0, len(prompt), 17):
        logits = engine.step([(prompt[begin : begin + 17], in_shares)])

    np.testing.assert_allclose(logits[0], engine.forward(prompt, at_once), atol=1e-4)
    opened.close()


def test_a_step_that_is_broken_off_leaves_every_cache_as_it_was(shard_set: ShardSet) -> None:
    model = shard_set.manifest.model
    engine, caches = Interpreter(shard_set, n_threads=1), [KeyValueCache(model) for _ in range(2)]
    for cache in caches:
        engine.forward([1, 2, 3], cache)

    def break_off() -> None:
        raise TimeoutError

    engine.before_layer = break_off
    with pytest.raises(TimeoutError):
        engine.step([([4, 5], cache) for cache in caches])
    assert [cache.token_ids for cache in caches] == [[1, 2, 3]] * 2
