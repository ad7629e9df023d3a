# SPDX-License-Identifier: Apache-2.0
"""Private memory at the first token, of the real model and of a large one: `make bench-large`.

The large one is 7B-shaped: random bf16 weights, about 13 GiB, made once under `.cache`. Its answer is noise;
its memory is not.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from quickthaw.layers import manifest
from quickthaw.layers.architecture import FusedShape, ModelConfig, Rope, embedding_tensors, layer_tensors
from quickthaw.layers.checkpoints import shard_file
from quickthaw.layers.checkpoints.shard_file import NewTensor, Tile
from quickthaw.layers.checkpoints.split import split
from quickthaw.layers.manifest import Manifest
from tests.bench import sampling

CACHE = Path(__file__).parent / ".cache"
PROMPT_IDS = "504,3575,282,4649,314"

SHAPE_7B = ModelConfig(
    family="llama",
    vocab_size=32000,
    hidden_size=4096,
    n_layers=32,
    n_heads=32,
    n_kv_heads=32,
    head_dim=128,
    ffn_size=11008,
    norm_eps=1e-5,
    max_positions=4096,
    tied_head=False,
    windows=(None,) * 32,
    rope=Rope(10000.0),
    bos_token_id=1,
    eos_token_ids=(2,),
)


def write_random(out: Path, model: ModelConfig) -> Path:
    """A bf16 shard set of random weights; one that is there already is used again."""
    if (out / manifest.FILE_NAME).exists():
        return out
    out.mkdir(parents=True, exist_ok=True)
    optional = {name for name in layer_tensors(model) if name.endswith("_bias")}
    layer = {name: fused for name, fused in layer_tensors(model).items() if name not in optional}
    shards = []
    for index, table in enumerate([embedding_tensors(model), *[layer] * model.n_layers]):
        path = out / manifest.shard_file_name(index)
        path.unlink(missing_ok=True)
        shards.append(
            shard_file.write(path, [_random(*item) for item in table.items()], lambda _n_bytes: None)
        )
    written = Manifest("7B-shaped, random", "", model, "bf16", None, None, (), tuple(shards))
    (out / manifest.FILE_NAME).write_bytes(manifest.encode(written.to_json()))
    return out


def _random(name: str, fused: FusedShape) -> NewTensor:
    if fused.n_columns is None:
        return NewTensor(name, "F32", fused.shape, [np.ones(fused.shape, np.float32)])
    return NewTensor(name, "BF16", fused.shape, _tiles(*fused.shape))


def _tiles(n_rows: int, n_columns: int) -> Iterator[Tile]:
    random = np.random.default_rng(0)
    for first in range(0, n_rows, 256):
        shape = (min(256, n_rows - first), n_columns)
        yield random.standard_normal(shape, dtype=np.float32) * np.float32(n_columns**-0.5)


def start(shards: Path) -> dict[str, float]:
    """One cold start: its private memory, its times, and the bytes of shards it mapped."""
    command = str(Path(sys.executable).with_name("quickthaw"))
    argv = [
        command,
        "invoke",
        "--shards",
        str(shards),
        "--prompt-ids",
        PROMPT_IDS,
        "--max-tokens",
        "1",
        "--json",
    ]
    argv += ["--timeout", "600"]
    environ = sampling.environment(QUICKTHAW_VERIFY="never")  # the time to hash 13 GiB is not the question
    found = json.loads(subprocess.run(argv, check=True, env=environ, capture_output=True, text=True).stdout)
    return {
        "private MiB": found["private_mib"],
        "ready ms": found["timeline_ms"]["ready"],
        "first token ms": found["timeline_ms"]["first_token"],
        "GB of shards": found["bytes_read"] / 1e9,
    }


def main() -> None:
    small = split("smollm2", CACHE / "smollm2-bf16", dtype="bf16").out
    large = write_random(CACHE / "random-7b", SHAPE_7B)
    columns = ["private MiB", "ready ms", "first token ms", "GB of shards"]
    print("| |", " | ".join(columns), "|\n|---|" + "---|" * len(columns))
    for name, shards in (("SmolLM2-135M bf16", small), ("7B-shaped bf16", large)):
        runs = [start(shards) for _ in range(3)]
        values = [sorted(run[column] for run in runs)[1] for column in columns]
        print(f"| {name} |", " | ".join(f"{value:.1f}" for value in values), "|")


if __name__ == "__main__":
    main()
