# SPDX-License-Identifier: Apache-2.0
"""Writes a shard: a safetensors file whose data begins on a page and whose tensors begin on cache lines.

    ┌──────────────┬───────────────────────────┬──────────┬──────────┬──────────┬─────
    │ header bytes │ JSON header, padded with  │ tensor   │ _pad.0   │ tensor   │ …
    │ u64, little  │ spaces                    │          │ U8, < 64 │          │
    └──────────────┴───────────────────────────┴──────────┴──────────┴──────────┴─────
    0              8                           4096·n     │          64·m

Safetensors admits no holes, so each gap is a tensor of its own. The header's `__metadata__` names the shard's
file, which tells two layers of equal shape apart. Source: the safetensors README, "Format".
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from quickthaw.layers.checkpoints import bfloat16
from quickthaw.layers.manifest import FORMAT
from quickthaw.layers.matrix_dtype import ITEM_BYTES
from quickthaw.layers.shard_entry import ALIGNMENT_BYTES, ShardEntry, TensorEntry

PAGE_BYTES = 4096
_STORED_AS = {"F32": "<f4", "F16": "<f2", "I8": "i1", "U8": "u1"}

Tile = npt.NDArray[np.float32]


class NewTensor(NamedTuple):
    """A tensor to be written: its values come in tiles, in order.

    Those of F32 and BF16 come as f32, the others as what they are stored as.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    tiles: Iterable[npt.NDArray[Any]]

    @property
    def size_bytes(self) -> int:
        """What it takes in the file."""
        return int(np.prod(self.shape, dtype=np.int64)) * ITEM_BYTES[self.dtype]


def write(path: Path, tensors: Sequence[NewTensor], advance: Callable[[int], None]) -> ShardEntry:
    """Writes and syncs a new file at `path`; `advance` is told of every batch of bytes.

    Raises: OSError, and OverflowError naming the tensor when a value does not fit its dtype.
    """
    offsets, padding = _layout(tensors)
    header = _header(path.name, tensors, offsets, padding)
    digest = hashlib.sha256()
    size_bytes = 0
    with open(path, "xb", buffering=0) as file:

        def put(data: bytes | npt.NDArray[Any]) -> None:
            nonlocal size_bytes
            view = (memoryview(data) if isinstance(data, bytes) else data.data).cast("B")
            digest.update(view)
            while view:
                n_bytes = file.write(view)
                view = view[n_bytes:]
                size_bytes += n_bytes
                advance(n_bytes)

        put(header)
        for tensor, pad_bytes in zip(tensors, padding, strict=True):
            for tile in tensor.tiles:
                put(_encoded(tensor, tile))
            if pad_bytes:
                put(bytes(pad_bytes))
        os.fsync(file.fileno())
    assert size_bytes == len(header) + sum(padding) + sum(tensor.size_bytes for tensor in tensors)
    entries = {
        tensor.name: TensorEntry(tensor.dtype, tensor.shape, len(header) + offset)
        for tensor, offset in zip(tensors, offsets, strict=True)
    }
    return ShardEntry(path.name, size_bytes, digest.hexdigest(), entries)


def _layout(tensors: Sequence[NewTensor]) -> tuple[list[int], list[int]]:
    """Each tensor's offset in the data section, and the padding after it."""
    offsets, padding, end_bytes = [], [], 0
    for tensor in tensors:
        offsets.append(end_bytes)
        end_bytes += tensor.size_bytes
        padding.append(-end_bytes % ALIGNMENT_BYTES)
        end_bytes += padding[-1]
    if padding:
        padding[-1] = 0  # nothing follows the last tensor
    return offsets, padding


def _header(file_name: str, tensors: Sequence[NewTensor], offsets: list[int], padding: list[int]) -> bytes:
    table: dict[str, Any] = {"__metadata__": {"format": FORMAT, "shard": file_name}}
    n_pads = 0
    for tensor, start, pad_bytes in zip(tensors, offsets, padding, strict=True):
        end = start + tensor.size_bytes
        table[tensor.name] = {"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": [start, end]}
        if pad_bytes:
            pad = {"dtype": "U8", "shape": [pad_bytes], "data_offsets": [end, end + pad_bytes]}
            table[f"_pad.{n_pads}"] = pad
            n_pads += 1
    text = json.dumps(table, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % PAGE_BYTES)
    return len(text).to_bytes(8, "little") + text


def _encoded(tensor: NewTensor, tile: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if tensor.dtype != "BF16":
        return np.ascontiguousarray(tile, _STORED_AS[tensor.dtype])
    try:
        return bfloat16.from_float32(tile).astype("<u2", copy=False)
    except OverflowError as exc:
        raise OverflowError(f"tensor {tensor.name}: {exc}") from exc
