# SPDX-License-Identifier: Apache-2.0
"""Passes through a shard set in this process, and what they took: a process that `shards.py` measures.

`plain` leaves reading to page faults; `ahead` is what a function does.
"""

import argparse
import json
import os
import time

from quickthaw.handler.config import keep_blas_single_threaded

keep_blas_single_threaded()

from quickthaw.layers import memory  # noqa: E402
from quickthaw.layers.config import LayersConfig  # noqa: E402
from quickthaw.layers.content import Contents  # noqa: E402
from quickthaw.layers.interpreter import Interpreter  # noqa: E402
from quickthaw.layers.kv import KeyValueCache  # noqa: E402
from quickthaw.layers.shard_set import ShardSet  # noqa: E402
from quickthaw.snapshot.host.process_memory import resident_bytes_by_file  # noqa: E402

PROMPT_IDS = (504, 3575, 282, 4649, 314)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shards")
    parser.add_argument("reading", choices=("plain", "ahead"))
    parser.add_argument("--memory-mib", default="auto")
    parser.add_argument("--tokens", type=int, default=1)
    parser.add_argument("--samples-memory", action="store_true", help="before each layer; it takes time")
    arguments = parser.parse_args()
    if arguments.reading == "plain":
        Contents.read_through = lambda *_: None  # type: ignore[method-assign, assignment]
    environ = {"QUICKTHAW_VERIFY": "never", "QUICKTHAW_MEMORY_MIB": arguments.memory_mib}
    begin_s = time.monotonic()
    shards = ShardSet.open(arguments.shards, LayersConfig.from_env(environ))
    engine, cache, counted = Interpreter(shards, 2), KeyValueCache(shards.manifest.model), [0]

    def count() -> None:
        mapped = sum(resident_bytes_by_file(os.getpid(), ".safetensors").values())
        counted.append(memory.anonymous_bytes() + mapped)

    if arguments.samples_memory:
        engine.before_layer = count
    logits = engine.forward(PROMPT_IDS, cache)
    first_s = time.monotonic()
    for _ in range(arguments.tokens - 1):
        logits = engine.forward([int(logits.argmax())], cache)
    found = {
        "first_token_ms": (first_s - begin_s) * 1e3,
        "next_token_ms": (time.monotonic() - first_s) * 1e3 / max(1, arguments.tokens - 1),
        "most_counted_mib": max(counted) / 2**20,
        "n_samples": len(counted) - 1,
        "token": int(logits.argmax()),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
