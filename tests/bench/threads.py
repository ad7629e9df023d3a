# SPDX-License-Identifier: Apache-2.0
"""The crew against OpenBLAS's own threads: one forward pass, on a quiet machine and beside busy neighbours.

`python -m tests.bench.threads` measures in processes of its own, since OpenBLAS reads its thread count once.
A neighbour is a process that computes without pause; there is one for each CPU but one.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from quickthaw.layers.checkpoints.split import split
from tests.bench import sampling

CACHE = Path(__file__).parent / ".cache"
PROMPTS = {"1 token": 1, "5 tokens": 5, "37 tokens": 37}

# Name → lanes of the crew, threads of OpenBLAS.
ARRANGEMENTS = {"1 thread": (1, 1), "crew of 2": (2, 1), "OpenBLAS with 2": (1, 2)}


@contextmanager
def neighbours(n: int) -> Iterator[None]:
    """n processes that spin."""
    spinning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(n)]
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()


def pass_ms(shards: Path, n_lanes: int, n_blas_threads: int, n_tokens: int) -> float:
    """The median of ten warm passes in a fresh process."""
    argv = [sys.executable, "-m", "tests.bench.threads", "--pass", str(shards), str(n_lanes), str(n_tokens)]
    environ = sampling.environment(OPENBLAS_NUM_THREADS=str(n_blas_threads))
    return float(subprocess.run(argv, check=True, env=environ, capture_output=True, text=True).stdout)


def one_process(shard_set: str, n_lanes: int, n_tokens: int) -> None:
    """Prints the median milliseconds of ten passes."""
    import statistics

    from quickthaw.layers.config import LayersConfig
    from quickthaw.layers.interpreter import Interpreter
    from quickthaw.layers.kv import KeyValueCache
    from quickthaw.layers.shard_set import ShardSet

    shards = ShardSet.open(Path(shard_set), LayersConfig.from_env({}))
    engine, elapsed_ms = Interpreter(shards, n_lanes), []
    for _ in range(11):
        cache = KeyValueCache(shards.manifest.model)
        start_ns = time.monotonic_ns()
        engine.forward(list(range(10, 10 + n_tokens)), cache)
        elapsed_ms.append((time.monotonic_ns() - start_ns) / 1e6)
    print(statistics.median(elapsed_ms[1:]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--pass", nargs=3, dest="one", metavar=("SHARDS", "LANES", "TOKENS"))
    arguments = parser.parse_args()
    if arguments.one:
        one_process(arguments.one[0], *map(int, arguments.one[1:]))
        return
    for dtype in ("f32", "bf16"):
        split("smollm2", CACHE / f"smollm2-{dtype}", dtype=dtype)
    for busy in (0, (os.cpu_count() or 2) - 1):
        with neighbours(busy):
            for dtype in ("f32", "bf16"):
                measure(dtype, busy, arguments.rounds)


def measure(dtype: str, busy: int, n_rounds: int) -> None:
    """Prints and saves one table."""
    shards = CACHE / f"smollm2-{dtype}"
    measures = {
        f"{arrangement}, {prompt}": lambda n_lanes=n_lanes, n_blas=n_blas, n=n_tokens: pass_ms(
            shards, n_lanes, n_blas, n
        )
        for prompt, n_tokens in PROMPTS.items()
        for arrangement, (n_lanes, n_blas) in ARRANGEMENTS.items()
    }
    samples = sampling.interleave(measures, n_rounds)
    print(f"\n{dtype}, busy neighbours: {busy}\n\n{sampling.table(samples, '1 thread, 1 token')}")
    sampling.save(f"threads-{dtype}-{busy}-busy", samples, dtype=dtype, busy_neighbours=busy)


if __name__ == "__main__":
    main()
