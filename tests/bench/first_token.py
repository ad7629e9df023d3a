# SPDX-License-Identifier: Apache-2.0
"""How long from starting a process to the first token: `make bench`.

SmolLM2-135M-Instruct, page cache warm, digests stamped. Ours is measured by `quickthaw invoke`, through the
Lambda Runtime API and with the tokenizer; the others print a line at their first token, and plain torch
gets the prompt as token ids, which favours it.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from quickthaw.layers.checkpoints.smollm2 import locate
from quickthaw.layers.checkpoints.split import split
from quickthaw.layers.config import LayersConfig
from tests.bench import sampling

CACHE = Path(__file__).parent / ".cache"
PEERS = Path(__file__).parent / "peers"
PROMPT = "The capital of France is"
QUESTION = "What is the capital of France?"
NUMPY = "python -c 'import numpy'"


def ours(field: str, shards: Path, *question: str) -> Callable[[], float]:
    """One cold start of the function; `field` is `ready` or `first_token`."""
    command = Path(sys.executable).with_name("quickthaw")
    argv = [str(command), "invoke", "--shards", str(shards), *question, "--max-tokens", "1", "--json"]

    def measure() -> float:
        done = subprocess.run(argv, check=True, env=sampling.environment(), capture_output=True, text=True)
        return float(json.loads(done.stdout)["timeline_ms"][field])

    return measure


def peer(name: str, *arguments: str) -> Callable[[], float]:
    """One start of another engine."""
    argv = [sys.executable, str(PEERS / f"{name}.py"), *arguments]
    return lambda: sampling.first_line_ms(argv)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="measure numpy and what has TEXT in its name"
    )
    arguments = parser.parse_args()
    CACHE.mkdir(exist_ok=True)
    f32 = split("smollm2", CACHE / "smollm2-f32", dtype="f32").out
    bf16 = split("smollm2", CACHE / "smollm2-bf16", dtype="bf16").out
    gguf = str(locate(Path(LayersConfig.from_env().cache)))
    checkpoint = CACHE / "smollm2-checkpoint"
    if not checkpoint.exists():
        subprocess.run([sys.executable, str(PEERS / "checkpoint.py"), gguf, str(checkpoint)], check=True)
    measures = {
        NUMPY: lambda: sampling.wall_ms([sys.executable, "-c", "import numpy"]),
        "quickthaw f32, ready": ours("ready", f32, "--prompt", PROMPT),
        "quickthaw f32, first token": ours("first_token", f32, "--prompt", PROMPT),
        "quickthaw bf16, first token": ours("first_token", bf16, "--prompt", PROMPT),
        "quickthaw f32, first token of a chat": ours("first_token", f32, "--chat", QUESTION),
        "llama-cpp-python Q4_1": peer("llama_cpp_python", gguf, PROMPT),
        "plain torch bf16": peer("plain_torch", str(checkpoint)),
        "transformers bf16": peer("transformers_generate", str(checkpoint), PROMPT),
    }
    chosen = {name: measure for name, measure in measures.items() if name == NUMPY or arguments.only in name}
    samples = sampling.interleave(chosen, arguments.rounds)
    print(sampling.table(samples, NUMPY))
    if not arguments.only:
        path = sampling.save("first_token", samples, prompt=PROMPT, question=QUESTION, page_cache="warm")
        print(f"\nevery sample: {path}", file=sys.stderr)


if __name__ == "__main__":
    main()
