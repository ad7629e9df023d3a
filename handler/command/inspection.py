# SPDX-License-Identifier: Apache-2.0
"""What a shard set holds, in words: the model, and a line for each file."""

from collections.abc import Iterator

from quickthaw.handler.command.table import format_table
from quickthaw.layers.manifest import Manifest


def describe_shards(manifest: Manifest) -> str:
    """The model in two lines, and a table of the files."""
    return "\n".join(
        [*_model(manifest), format_table([("file", "bytes", "tensors", "sha-256"), *_files(manifest)])]
    )


def _model(manifest: Manifest) -> Iterator[str]:
    model = manifest.model
    size_bytes = sum(shard.size_bytes for shard in manifest.shards)
    n_shards = len(manifest.shards)
    yield f"{manifest.name}: {model.family}, {manifest.dtype}, {size_bytes:,} bytes in {n_shards} shards"
    yield (
        f"{model.n_layers} layers, hidden {model.hidden_size}, feed-forward {model.ffn_size}, "
        f"{model.n_heads} heads of {model.head_dim} ({model.n_kv_heads} of keys and values), "
        f"vocabulary {model.vocab_size}, {model.max_positions} positions"
    )


def _files(manifest: Manifest) -> Iterator[tuple[str, str, str, str]]:
    for shard in manifest.shards:
        yield shard.file, f"{shard.size_bytes:,}", str(len(shard.tensors)), shard.sha256
    if manifest.tokenizer is not None:
        entry = manifest.tokenizer
        yield str(entry["file"]), f"{entry['size_bytes']:,}", "", str(entry["sha256"])
