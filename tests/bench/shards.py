# SPDX-License-Identifier: Apache-2.0
"""Shards that are not in memory, or do not fit into it: `make bench-shards`.

SmolLM2-135M in f32 (513 MiB), from a local disk. Each row is a process of its own, in turns; before each one
that reads from the disk the shards are dropped from the page cache (POSIX_FADV_DONTNEED). The machine below a
virtual disk may still have them. Times begin after the imports.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from quickthaw.layers.checkpoints.split import split
from tests.bench import sampling

CACHE = Path(__file__).parent / ".cache"
HERE = Path(__file__).parent
DEPTHS = ("1", "2", "4", "8")


def drop(shards: Path) -> None:
    """The page cache lets go of them."""
    for path in shards.iterdir():
        with open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def run(script: str, *arguments: str) -> str:
    """What a measured process prints."""
    argv = [sys.executable, str(HERE / script), *arguments]
    return subprocess.run(argv, check=True, env=sampling.environment(), capture_output=True, text=True).stdout


def forward(shards: Path, *arguments: str) -> dict[str, Any]:
    """One process that computes."""
    found: dict[str, Any] = json.loads(run("forward.py", str(shards), *arguments))
    return found


def first_token_ms(shards: Path, reading: str, *, is_cold: bool) -> Callable[[], float]:
    """From opening the set to the first token."""

    def measure() -> float:
        if is_cold:
            drop(shards)
        else:
            run("read_shards.py", "1", str(shards))
        return float(forward(shards, reading)["first_token_ms"])

    return measure


def loaded_ms(shards: Path, how: str) -> Callable[[], float]:
    """Until all of it is in memory."""

    def measure() -> float:
        drop(shards)
        return float(run("read_shards.py", how, str(shards)))

    return measure


def budget(shards: Path, n_tokens: int) -> str:
    """Memory and pace of a model whose budget is a quarter of it."""
    size_mib = sum(path.stat().st_size for path in shards.iterdir()) / 2**20
    limit = str(round(size_mib / 4))
    count = ("--tokens", str(n_tokens))
    unlimited = [forward(shards, "ahead", *count) for _ in range(3)]
    bounded = [forward(shards, "ahead", "--memory-mib", limit, *count) for _ in range(3)]
    watched = forward(shards, "ahead", "--memory-mib", limit, *count, "--samples-memory")
    paces = [statistics.median(1e3 / each["next_token_ms"] for each in runs) for runs in (unlimited, bounded)]
    is_right = {each["token"] for each in (*unlimited, *bounded, watched)} == {watched["token"]}
    return (
        f"budget {limit} MiB for {size_mib:.0f} MiB of shards: "
        f"at most {watched['most_counted_mib']:.0f} MiB in {watched['n_samples']} samples; "
        f"{paces[1]:.1f} tokens/s against {paces[0]:.1f} unlimited; "
        f"the same answer: {is_right}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    rounds = parser.parse_args().rounds
    CACHE.mkdir(exist_ok=True)
    shards = split("smollm2", CACHE / "smollm2-f32", dtype="f32").out
    measures = {
        "warm: plain mmap, first token": first_token_ms(shards, "plain", is_cold=False),
        "warm: quickthaw, first token": first_token_ms(shards, "ahead", is_cold=False),
        **{f"disk: bare reads, {depth} at once": loaded_ms(shards, depth) for depth in DEPTHS},
        "disk: quickthaw, first token": first_token_ms(shards, "ahead", is_cold=True),
        "disk: plain mmap, first token": first_token_ms(shards, "plain", is_cold=True),
        "disk: read whole, loaded": loaded_ms(shards, "eager"),
        "disk: safetensors' mmap, loaded": loaded_ms(shards, "safetensors"),
        "disk: Run:ai Model Streamer, loaded": loaded_ms(shards, "runai"),
    }
    samples = sampling.interleave(measures, rounds)
    print(sampling.table(samples, "disk: quickthaw, first token"))
    read_ms = min(statistics.median(samples[f"disk: bare reads, {depth} at once"]) for depth in DEPTHS)
    compute_ms = statistics.median(samples["warm: plain mmap, first token"])
    found_ms = statistics.median(samples["disk: quickthaw, first token"])
    print(
        f"\nfirst token from disk: {found_ms:.0f} ms, {found_ms / max(read_ms, compute_ms):.2f} × "
        f"the longer of reading at the best rate ({read_ms:.0f} ms) and computing ({compute_ms:.0f} ms)"
    )
    print(budget(shards, n_tokens=20))
    print(f"\nsamples: {sampling.save('shards', samples)}")


if __name__ == "__main__":
    main()
