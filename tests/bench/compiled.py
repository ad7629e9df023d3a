# SPDX-License-Identifier: Apache-2.0
"""The compiled engine beside llama-cpp-python: `make bench-compiled`.

SmolLM2-135M-Instruct on two threads: a token of one stream, a prompt of 512 tokens, and the first token of a
clone of a process that was captured with this engine, beside llama-cpp-python's start. Each a fresh process,
in turns. llama-cpp-python runs Q4_1, as which the model was published.
"""

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from quickthaw.layers.checkpoints.smollm2 import locate
from quickthaw.layers.checkpoints.split import split
from quickthaw.layers.config import LayersConfig
from quickthaw.snapshot.engines.zygote import ZygoteEngine
from tests.bench import sampling
from tests.bench.first_token import CACHE, PROMPT, peer
from tests.bench.starts import HANDLERS, event, start

LLAMA = "llama-cpp-python Q4_1"
DTYPES = ("int4", "int8", "bf16")


def pace(model: str) -> dict[str, float]:
    """What tests/bench/pace.py measures."""
    argv = [sys.executable, "-W", "ignore", "-m", "tests.bench.pace", model]
    done = subprocess.run(
        argv, check=True, env=sampling.environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    arguments = parser.parse_args()
    CACHE.mkdir(exist_ok=True)
    gguf = str(locate(Path(LayersConfig.from_env().cache)))
    sets = {dtype: str(split("smollm2", CACHE / f"smollm2-{dtype}", dtype=dtype).out) for dtype in DTYPES}
    models = {LLAMA: gguf, **{f"quickthaw {dtype}": path for dtype, path in sets.items()}}
    samples: dict[str, sampling.Samples] = {"token": {}, "prompt": {}, "first token": {}}
    environ = sampling.environment(QUICKTHAW_SHARDS=sets["int4"])
    begin_llama: Callable[[], float] = peer("llama_cpp_python", gguf, PROMPT)
    with ZygoteEngine(HANDLERS["ours"]) as engine:
        clone = partial(start, engine, environ, event)
        for number in range(arguments.rounds + 1):
            found = {name: pace(model) for name, model in models.items()}
            _, first_ms, warm_ms = clone()
            starts = {LLAMA: begin_llama(), "quickthaw int4, a clone": first_ms, "the same, warm": warm_ms}
            if number == 0:  # packs, captures, and warms the page cache
                continue
            for name, each in found.items():
                for measure, value in each.items():
                    samples[measure].setdefault(name, []).append(value)
            for name, value in starts.items():
                samples["first token"].setdefault(name, []).append(value)
    for measure, rows in samples.items():
        print(f"\n{measure}, {len(rows[LLAMA])} rounds\n\n{sampling.table(rows, LLAMA)}")
    warm = statistics.median(samples["first token"]["the same, warm"])
    print(f"\na clone's first token beside a warm one's: at most {1.2 * warm + 10:.1f} ms wanted")
    flat = {f"{measure}: {name}": v for measure, rows in samples.items() for name, v in rows.items()}
    print(f"\nevery sample: {sampling.save('compiled', flat, rounds=arguments.rounds)}", file=sys.stderr)


if __name__ == "__main__":
    main()
