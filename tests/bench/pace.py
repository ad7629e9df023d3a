# SPDX-License-Identifier: Apache-2.0
"""One warm process's pace: `python -m tests.bench.pace SHARDS`, or a GGUF file for llama-cpp-python.

Prints how long a token takes after a prompt of 5, and a prompt of 512; each the best of three.
"""

import json
import random
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

N_THREADS, N_DECODED, N_PROMPT, N_TRIES = 2, 48, 512, 3
IDS = [random.Random(1).randrange(1000, 40_000) for _ in range(N_PROMPT)]

Eval = Callable[[Sequence[int]], object]  # goes on from what came before


def llama(path: str) -> Callable[[], Eval]:
    """A beginning for each sequence."""
    from llama_cpp import Llama

    model = Llama(
        path, n_ctx=2048, n_threads=N_THREADS, n_threads_batch=N_THREADS, n_batch=N_PROMPT, verbose=False
    )

    def begin() -> Eval:
        model.reset()
        return model.eval

    return begin


def ours(directory: str) -> Callable[[], Eval]:
    """The same with the compiled engine."""
    from quickthaw.handler.config import keep_blas_single_threaded

    keep_blas_single_threaded()
    from quickthaw.layers.compiled.engine import Compiled
    from quickthaw.layers.config import LayersConfig
    from quickthaw.layers.kv import KeyValueCache
    from quickthaw.layers.shard_set import ShardSet

    config = LayersConfig.from_env()
    shards = ShardSet.open(directory, config)
    engine = Compiled(shards, N_THREADS, config.cache)

    def begin() -> Eval:
        cache = KeyValueCache(shards.manifest.model)
        return lambda ids: (engine.forward(ids, cache), shards.spans.take())

    return begin


def best_ms(measure: Callable[[], object]) -> float:
    """The fastest of some tries."""
    times_ns = []
    for _ in range(N_TRIES):
        begin_ns = time.monotonic_ns()
        measure()
        times_ns.append(time.monotonic_ns() - begin_ns)
    return min(times_ns) / 1e6


def main() -> None:
    begin = (ours if Path(sys.argv[1]).is_dir() else llama)(sys.argv[1])

    def decode() -> None:
        for token_id in IDS[5 : 5 + N_DECODED]:
            evaluate([token_id])

    prompt_ms = best_ms(lambda: begin()(IDS))
    evaluate = begin()
    evaluate(IDS[:5])
    print(json.dumps({"token": best_ms(decode) / N_DECODED, "prompt": prompt_ms}))


if __name__ == "__main__":
    main()
