# SPDX-License-Identifier: Apache-2.0
"""What one process makes of several streams: the tokens a second of one, and of eight at once, in turns.

`python -m tests.bench.serve`. The bar: eight streams at least 3 times one stream's tokens a second.
"""

import argparse
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from quickthaw.layers.checkpoints.split import split
from tests.bench import sampling
from tests.bench.host import CACHE, N_TOKENS, read_stream


@contextmanager
def serving(shards: Path, *arguments: str) -> Iterator[int]:
    """Run `quickthaw serve` as a person would; yield its port."""
    program = "import sys; from quickthaw.handler.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", program, "serve", "--shards", str(shards), "--port", "0", *arguments]
    environ = sampling.environment(PYTHONUNBUFFERED="1", QUICKTHAW_LOG="off")
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline().rpartition(":")[2])
        finally:
            process.terminate()


def tokens_a_second(port: int, n_streams: int, gaps: list[float]) -> float:
    """Of all streams together, up to the last one; adds the times between two tokens of a stream, in ms."""
    found: list[float] = []
    readers = [threading.Thread(target=read_stream, args=(port, found)) for _ in range(n_streams)]
    start = time.perf_counter()
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    elapsed_s = time.perf_counter() - start
    if len(found) < n_streams * (N_TOKENS - 2):
        raise SystemExit(f"only {len(found)} tokens came")
    gaps += found
    return n_streams * N_TOKENS / elapsed_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--dtype", choices=("bf16", "f32"), default="bf16")
    arguments = parser.parse_args()
    n_streams, samples = arguments.streams, sampling.Samples()
    shards = split("smollm2", CACHE / f"smollm2-{arguments.dtype}", dtype=arguments.dtype).out
    gaps: dict[int, list[float]] = {1: [], n_streams: []}
    rates: dict[int, list[float]] = {1: [], n_streams: []}
    with serving(shards) as port:
        tokens_a_second(port, 1, [])
        for _ in range(arguments.rounds):
            for n in rates:
                rates[n].append(tokens_a_second(port, n, gaps[n]))
    for n in rates:
        samples[f"{n}, tokens a second"], samples[f"{n}, inter-token"] = rates[n], gaps[n]
        p99 = statistics.quantiles(gaps[n], n=100)[-1]
        print(
            f"{n} at once: {statistics.median(rates[n]):.1f} tokens/s; between two of one "
            f"{statistics.median(gaps[n]):.1f} ms, 99th percentile {p99:.1f} ms"
        )
    print(f"ratio: {statistics.median(rates[n_streams]) / statistics.median(rates[1]):.2f}")
    sampling.save("serve", samples, dtype=arguments.dtype, streams=n_streams, n_cpus=os.cpu_count())


if __name__ == "__main__":
    main()
