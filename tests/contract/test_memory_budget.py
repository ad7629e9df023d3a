# SPDX-License-Identifier: Apache-2.0
"""A model that is larger than the memory it may use, in a process of its own: the answer is right."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from quickthaw.layers.architecture import ModelConfig, Rope
from tests.bench.memory import write_random

MODEL = ModelConfig(
    family="llama",
    vocab_size=32768,  # so that the head has two tiles
    hidden_size=512,
    n_layers=12,
    n_heads=8,
    n_kv_heads=8,
    head_dim=64,
    ffn_size=2048,
    norm_eps=1e-5,
    max_positions=64,
    tied_head=True,
    windows=(None,) * 12,
    rope=Rope(10000.0),
    bos_token_id=1,
    eos_token_ids=(2,),
)
PROGRAM = """
import json, sys
from quickthaw.handler.config import keep_blas_single_threaded
keep_blas_single_threaded()
from quickthaw.layers import memory
from quickthaw.layers.config import LayersConfig
from quickthaw.layers.interpreter import Interpreter
from quickthaw.layers.kv import KeyValueCache
from quickthaw.layers.shard_set import ShardSet
from quickthaw.snapshot.host.process_memory import resident_bytes_by_file
import os

environ = dict(QUICKTHAW_VERIFY="never", QUICKTHAW_MAP=sys.argv[2])
own_mib = memory.anonymous_bytes() >> 20
if sys.argv[3] != "auto":
    environ["QUICKTHAW_MEMORY_MIB"] = str(own_mib + 8 + int(sys.argv[3]))
shards = ShardSet.open(sys.argv[1], LayersConfig.from_env(environ))
engine, cache, most = Interpreter(shards, 2), KeyValueCache(shards.manifest.model), 0

def look():
    global most
    mapped = sum(resident_bytes_by_file(os.getpid(), ".safetensors").values())
    most = max(most, memory.anonymous_bytes() + mapped)

engine.before_layer = look
tokens = [1, 5, 9]
for _ in range(5):
    logits = engine.forward(tokens[cache.n_tokens:], cache)
    look()
    tokens.append(int(logits.argmax()))
found = {"tokens": tokens, "most_mib": most >> 20, "own_mib": own_mib, "n_evicted": shards.n_evicted}
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_random(tmp_path_factory.mktemp("large") / "shards", MODEL)


def answer(large: Path, mapping: str, extra_mib: str) -> dict[str, int]:
    argv = [sys.executable, "-c", PROGRAM, str(large), mapping, extra_mib]
    found: dict[str, int] = json.loads(
        subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    )
    return found


def test_a_model_beyond_its_budget_answers_the_same(large: Path) -> None:
    unlimited = answer(large, "auto", "auto")
    # Interpreter, a tile of 16 MiB, and room for two of twelve layers.
    bounded = answer(large, "auto", "40")

    assert unlimited["n_evicted"] == 0
    assert bounded["n_evicted"] >= 9 * 5  # layers, and tokens
    assert bounded["tokens"] == unlimited["tokens"]
    assert bounded["most_mib"] - bounded["own_mib"] <= 48 + 16 < unlimited["most_mib"] - unlimited["own_mib"]
