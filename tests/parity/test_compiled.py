# SPDX-License-Identifier: Apache-2.0
"""The compiled engine: in f32 its tokens are the reference's, and a batch computes what one would alone."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from quickthaw.layers.checkpoints.split import split
from quickthaw.layers.compiled.engine import Compiled
from quickthaw.layers.interpreter import Interpreter
from quickthaw.layers.kv import KeyValueCache
from quickthaw.layers.shard_set import ShardSet
from tests import greedy, models, shards
from tests.divergence import divergence, log_probabilities
from tests.greedy import Case


@pytest.fixture
def shard_set(tmp_path: Path) -> Iterator[ShardSet]:
    opened = ShardSet.open(shards.make(tmp_path, "qwen2-window"), shards.config(tmp_path))
    yield opened
    opened.close()


@pytest.mark.parametrize(
    "case", [case for case in greedy.CASES if case.dtype == "f32"], ids=lambda case: case.name
)
def test_tiny_checkpoint(case: Case, tmp_path: Path) -> None:
    out = split(str(greedy.checkpoint(tmp_path / "source", case)), tmp_path / "out", dtype="f32").out
    found = greedy.continuation(out, greedy.prompt(case), Compiled)
    greedy.assert_same(found, greedy.read_golden()[case.name])


def test_smollm2(smollm2_shards: Path) -> None:
    found = greedy.continuation(smollm2_shards, greedy.SMOLLM2_PROMPT, Compiled)
    greedy.assert_same(found, greedy.read_golden()[greedy.SMOLLM2])


@pytest.mark.parametrize(("dtype", "most"), [("bf16", 0.002), ("int8", 0.02), ("int4", 0.01)])
def test_smollm2_in_fewer_bits(
    dtype: str, most: float, smollm2_shards: Path, request: pytest.FixtureRequest
) -> None:
    shard_set: Path = request.getfixturevalue(f"smollm2_{dtype}_shards")
    found = divergence(log_probabilities(smollm2_shards), log_probabilities(shard_set, Compiled))
    assert found.kl < most
    assert found.agreement >= 0.9


@pytest.mark.parametrize("dtype", ["bf16", "int8", "int4"])
@pytest.mark.parametrize("name", models.CONFIGS)
def test_fewer_bits_mean_the_same_to_both_engines(name: str, dtype: str, tmp_path: Path) -> None:
    """One token at a time, and so many that weights are widened; products are rounded to bf16."""
    opened = ShardSet.open(shards.make(tmp_path, name, dtype), shards.config(tmp_path))
    interpreter, compiled = Interpreter(opened, n_threads=1), Compiled(opened, n_threads=1)
    ours, theirs = KeyValueCache(opened.manifest.model), KeyValueCache(opened.manifest.model)
    for token_ids in ([3], [5, 7], list(range(100)), [11]):
        expected = interpreter.forward(token_ids, theirs)
        found = compiled.forward(token_ids, ours)
        error = np.sqrt(np.square(found - expected).mean() / np.square(expected).mean())
        assert error < 0.03


def test_sequences_of_one_step_are_each_its_own(shard_set: ShardSet) -> None:
    model, engine = shard_set.manifest.model, Compiled(shard_set, n_threads=1)
    prompts = [[5], [7, 8, 9] * 10, [11, 12]]
    alone = [KeyValueCache(model) for _ in prompts]
    together = [KeyValueCache(model) for _ in prompts]

    for _ in range(3):
        expected = [engine.forward(prompt, cache) for prompt, cache in zip(prompts, alone, strict=True)]
        found = engine.step(list(zip(prompts, together, strict=True)))
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
        prompts = [[int(logits.argmax())] for logits in expected]


def test_a_step_that_is_broken_off_leaves_every_cache_as_it_was(shard_set: ShardSet) -> None:
    model, engine = shard_set.manifest.model, Compiled(shard_set, n_threads=1)
    caches = [KeyValueCache(model), KeyValueCache(model)]
    engine.step([([1, 2, 3], caches[0]), ([4], caches[1])])
    n_left = model.n_layers + 1  # into the second chunk of the second prompt

    def break_off() -> None:
        nonlocal n_left
        n_left -= 1
        if n_left < 0:
            raise TimeoutError

    engine.before_layer = break_off
    with pytest.raises(TimeoutError):
        engine.step([([5], caches[0]), ([6] * 1200, caches[1])])
    assert [cache.token_ids for cache in caches] == [[1, 2, 3], [4]]


@pytest.mark.parametrize("n_before", [1, 2, 7])
def test_the_engines_go_on_from_each_others_tokens(shard_set: ShardSet, n_before: int) -> None:
    """A session is handed over after some requests, there and back."""
    model = shard_set.manifest.model
    interpreter, compiled = Interpreter(shard_set, n_threads=1), Compiled(shard_set, n_threads=1)
    cache, alone = KeyValueCache(model), KeyValueCache(model)
    for number in range(n_before + 2):
        tokens = [number + 1, number + 2, number + 3]
        engine = compiled if number == n_before else interpreter
        expected = interpreter.forward(tokens, alone)
        np.testing.assert_allclose(engine.forward(tokens, cache), expected, rtol=0, atol=1e-4)
