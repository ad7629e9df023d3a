# SPDX-License-Identifier: Apache-2.0
"""Reads the front of a GGUF file: metadata, and where each tensor lies.

    ┌────────┬─────────┬───────────┬─────────────┬────────────┬──────────────┬─────────┬──────────────┐
    │ "GGUF" │ version │ n_tensors │ n_metadata  │ metadata … │ tensors …    │ padding │ tensor data  │
    │        │ u32     │ u64       │ u64         │            │              │         │              │
    └────────┴─────────┴───────────┴─────────────┴────────────┴──────────────┴─────────┴──────────────┘
    metadata entry: key string, u32 type, value.      string: u64 length, bytes.
    tensor entry:   name string, u32 n_dimensions, u64 each (row length first), u32 type, u64 offset in data.

The gguf package's own reader takes seconds for a large vocabulary and loops on a damaged count, so only its
dequantisation is used. Source: ggml `docs/gguf.md`.
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from quickthaw.layers.errors import CheckpointError

_VERSIONS = (2, 3)
_DEFAULT_ALIGNMENT_BYTES = 32
_STRING, _ARRAY = 8, 9
_SCALARS = {
    0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4",
    6: "<f4", 7: "?", 10: "<u8", 11: "<i8", 12: "<f8",
}  # fmt: skip


class GgufTensor(NamedTuple):
    """A tensor's shape with the row length last, ggml's number of its type, and its place in the file."""

    shape: tuple[int, ...]
    type_id: int
    offset_bytes: int


class GgufFile(NamedTuple):
    """The front of a GGUF file."""

    metadata: dict[str, Any]
    tensors: dict[str, GgufTensor]
    size_bytes: int


def read(path: Path) -> GgufFile:
    """Raises: CheckpointError when the file is no GGUF file, or a damaged one."""
    try:
        with open(path, "rb") as file:
            _check_magic(file.read(8), path)
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _Cursor(data).front()
    except (OSError, struct.error, ValueError, KeyError) as exc:
        raise CheckpointError(
            "cannot read a GGUF file", where=path, found=str(exc) or repr(exc), advice="download it again"
        ) from exc


def _check_magic(start: bytes, path: Path) -> None:
    if start[:4] != b"GGUF" or len(start) < 8:
        raise CheckpointError("not a GGUF file", where=path, expected="GGUF", found=repr(start[:4]))
    version = int.from_bytes(start[4:], "little")
    if version & 0xFFFF == 0:
        raise CheckpointError(
            "GGUF file is big-endian",
            where=path,
            advice="convert it with the gguf package's gguf-convert-endian",
        )
    if version not in _VERSIONS:
        raise CheckpointError("unknown GGUF version", where=path, expected="2 or 3", found=version)


class _Cursor:
    """Reads values one after another; a value beyond the end raises struct.error or ValueError."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self._offset = 8  # behind magic and version

    def front(self) -> GgufFile:
        n_tensors, n_metadata = self._unpack("<QQ")
        metadata = {}
        for _ in range(n_metadata):
            key = self._string()
            metadata[key] = self._value(key, *self._unpack("<I"))
        entries = [self._tensor() for _ in range(n_tensors)]
        alignment = metadata.get("general.alignment", _DEFAULT_ALIGNMENT_BYTES)
        if type(alignment) is not int or alignment <= 0:
            raise ValueError(f"general.alignment is {alignment!r}")
        start = self._offset + -self._offset % alignment
        tensors = {name: entry._replace(offset_bytes=start + entry.offset_bytes) for name, entry in entries}
        if len(tensors) != n_tensors:
            raise ValueError("two tensors have one name")
        return GgufFile(metadata, tensors, len(self._data))

    def _unpack(self, layout: str) -> tuple[Any, ...]:
        values = struct.unpack_from(layout, self._data, self._offset)
        self._offset += struct.calcsize(layout)
        return values

    def _take(self, n_bytes: int) -> bytes:
        end = self._offset + n_bytes
        if end > len(self._data):
            raise ValueError(f"the file ends at {len(self._data)}, inside a value that ends at {end}")
        taken = self._data[self._offset : end]
        self._offset = end
        return taken

    def _string(self) -> str:
        # surrogateescape: a token may be any bytes, and the tokenizer wants them back as they were.
        return self._take(*self._unpack("<Q")).decode("utf-8", "surrogateescape")

    def _value(self, key: str, type_id: int) -> Any:
        if type_id == _STRING:
            return self._string()
        if type_id != _ARRAY:
            return self._scalars(key, type_id, 1)[0]
        item_type_id, n_items = self._unpack("<IQ")
        if item_type_id == _STRING:
            return [self._string() for _ in range(n_items)]
        return self._scalars(key, item_type_id, n_items)

    def _scalars(self, key: str, type_id: int, n_items: int) -> list[Any]:
        if type_id not in _SCALARS:  # an array of arrays, too: nobody writes one
            raise ValueError(f"{key} has values of the unknown type {type_id}")
        dtype = np.dtype(_SCALARS[type_id])
        values: list[Any] = np.frombuffer(self._take(n_items * dtype.itemsize), dtype).tolist()
        return values

    def _tensor(self) -> tuple[str, GgufTensor]:
        name = self._string()
        (n_dimensions,) = self._unpack("<I")
        if n_dimensions > 4:  # ggml's limit
            raise ValueError(f"tensor {name} has {n_dimensions} dimensions")
        dimensions = self._unpack(f"<{n_dimensions}Q")
        type_id, offset_bytes = self._unpack("<IQ")
        return name, GgufTensor(tuple(reversed(dimensions)), type_id, offset_bytes)
