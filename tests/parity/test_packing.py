# SPDX-License-Identifier: Apache-2.0
"""Packed weights are used by the processor and torch that they were packed for, and by no other."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from quickthaw.layers.checkpoints.quantizer import Loss
from quickthaw.layers.compiled.packing import PackingCache, pack
from tests import greedy, shards
from tests.quantised import quantised

WEIGHTS = np.random.default_rng(5).standard_normal((32, 64)).astype(np.float32)
MATRIX, _ = quantised(WEIGHTS, "int4", Loss())
GREEDY = """
import json, sys
from quickthaw.layers.compiled.engine import Compiled
from quickthaw.layers.config import LayersConfig
from quickthaw.layers.kv import KeyValueCache
from quickthaw.layers.shard_set import ShardSet
import torch

shards, cache, prompt = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
opened = ShardSet.open(shards, LayersConfig.from_env({}))
engine, kv = Compiled(opened, 2, cache), KeyValueCache(opened.manifest.model)
token_ids = prompt
for _ in range(12):
    token_ids = [int(engine.forward(token_ids, kv).argmax())]
print(json.dumps([torch.backends.cpu.get_cpu_capability(), kv.token_ids[len(prompt):]]))
"""


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    path = tmp_path / "cache"
    path.mkdir(mode=0o700)
    return path


def packed(cache: Path, sha256: str = "a" * 64) -> list[torch.Tensor]:
    found = PackingCache(str(cache)).packed(sha256, {"down": MATRIX})["down"]
    return [found.weight.clone(), found.scales_and_zeros.clone()]


def is_right(found: list[torch.Tensor]) -> bool:
    return all(torch.equal(ours, theirs) for ours, theirs in zip(found, pack(MATRIX), strict=True))


@pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() != "AVX512", reason="this processor has no AVX-512"
)
def test_every_capability_says_the_same(smollm2_int4_shards: Path, cache: Path) -> None:
    found = {}
    for capability in ("default", "avx2", "avx512"):
        argv = [sys.executable, "-c", GREEDY, str(smollm2_int4_shards), str(cache)]
        done = subprocess.run(
            [*argv, json.dumps(greedy.SMOLLM2_PROMPT)],
            env={**os.environ, "ATEN_CPU_CAPABILITY": capability},
            check=True,
            capture_output=True,
            text=True,
        )
        name, token_ids = json.loads(done.stdout)
        found[name] = token_ids
    assert found.keys() == {"DEFAULT", "AVX2", "AVX512"}
    assert found["DEFAULT"] == found["AVX2"] == found["AVX512"]
    assert len({path.name.split("-")[2] for path in cache.iterdir()}) == 3


def test_what_is_kept_is_what_was_packed(cache: Path) -> None:
    assert is_right(packed(cache))
    (path,) = cache.iterdir()
    before = path.stat().st_mtime_ns
    assert is_right(packed(cache))
    assert path.stat().st_mtime_ns == before


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: shards.flip_bit(path),
        lambda path: shards.flip_bit(path, 20),
        lambda path: path.write_bytes(path.read_bytes()[:-64]),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes().replace(b'"AVX', b'"XVA').replace(b'"DEF', b'"FED')),
    ],
    ids=["body", "header", "cut short", "empty", "another processor's"],
)
def test_a_file_that_is_not_right_is_made_anew(cache: Path, damage: Callable[[Path], object]) -> None:
    packed(cache)
    (path,) = cache.iterdir()
    right = path.read_bytes()
    damage(path)
    assert is_right(packed(cache))
    assert path.read_bytes() == right


def test_another_shards_file_is_not_taken(cache: Path) -> None:
    packed(cache, "b" * 64)
    (path,) = cache.iterdir()
    path.rename(cache / path.name.replace("b" * 32, "a" * 32))
    other, _ = quantised(-WEIGHTS, "int4", Loss())
    found = PackingCache(str(cache)).packed("a" * 64, {"down": other})["down"]
    assert torch.equal(found.scales_and_zeros, pack(other).scales_and_zeros)


def test_a_directory_that_others_may_write_keeps_nothing(
    cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cache.chmod(0o777)
    assert is_right(packed(cache))
    assert list(cache.iterdir()) == []
    assert "cannot keep packed weights" in capsys.readouterr().err
