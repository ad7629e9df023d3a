# SPDX-License-Identifier: Apache-2.0
"""int4 matrices as torch's kernel wants them: derived from what is stored, and kept in the cache directory.

The layout depends on the processor's vector instructions and is torch's own affair: given another one's, the
kernel computes garbage without an error. So it is never part of a shard set, and the file of one shard is

    packed-SHARD-CAPABILITY-TORCH.bin
    ┌──────────────────────────────────────────┬────────────────────┬───────────────────────────────┬─────
    │ JSON, padded with spaces: whose it is,   │ weight (n_out,     │ scales and zeros (n_groups,   │ …
    │ size and CRC-32 of what follows          │ n_in / 2) u8       │ n_out, 2) bf16                │
    └──────────────────────────────────────────┴────────────────────┴───────────────────────────────┴─────
    0                                          4096                 64·n

which is mapped, so that processes share it and a fork copies no page tables. A file that is not whole, or not
this shard's, processor's and torch's, is made anew; where none can be kept, memory takes its place.
"""

from __future__ import annotations

import json
import mmap
import os
import sys
from binascii import crc32
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from quickthaw.layers.compiled.linear import Packed, zeros
from quickthaw.layers.compiled.view import view
from quickthaw.layers.matrix import Int4
from quickthaw.layers.verification import open_private

_HEADER_BYTES = 4096
_ALIGNMENT_BYTES = 64
_ROWS = 16  # which the kernel takes at a time


def is_packable(matrix: Int4) -> bool:
    """Whether the kernel takes a matrix of this shape."""
    return len(matrix.weight) % _ROWS == 0


def pack(matrix: Int4) -> Packed:
    """For this process's processor and torch."""
    weight = view(matrix.weight)
    steps = torch.stack((weight & 0xF, weight >> 4), -1).view(len(weight), -1).to(torch.int32)
    scale, minimum = view(matrix.scale), view(matrix.minimum)
    scales_and_zeros = torch.stack((scale.float(), zeros(scale, minimum)), -1).transpose(0, 1)
    packed = torch._convert_weight_to_int4pack_for_cpu(steps, 1)
    return Packed(packed, scales_and_zeros.to(torch.bfloat16).contiguous())


class PackingCache:
    """Gives the packed matrices of a shard; `directory` is None where nothing is to be kept."""

    def __init__(self, directory: str | None) -> None:
        self._directory = directory

    def packed(self, sha256: str, matrices: Mapping[str, Int4]) -> dict[str, Packed]:
        """Of the shard with that digest. Those that the kernel does not take are left out."""
        matrices = {name: matrix for name, matrix in matrices.items() if is_packable(matrix)}
        if not matrices or self._directory is None:
            return {name: pack(matrix) for name, matrix in matrices.items()}
        key = {
            "format": "quickthaw-packed",
            "version": 1,
            "shard": sha256,
            "capability": torch.backends.cpu.get_cpu_capability(),
            "torch": torch.__version__,
        }
        found = _read(self._directory, key)
        if found is None:
            made = {name: pack(matrix) for name, matrix in matrices.items()}
            if not _write(self._directory, key, made):
                return made
            found = _read(self._directory, key)
            if found is None:
                return made
        return _cut(found, matrices)


def _file_name(key: Mapping[str, Any]) -> str:
    return f"packed-{key['shard'][:32]}-{key['capability']}-{key['torch']}.bin"


def _read(directory: str, key: Mapping[str, Any]) -> mmap.mmap | None:
    """The whole file, if it is there and what it says of itself is true."""
    try:
        parent = open_private(directory)
        try:
            descriptor = os.open(_file_name(key), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
        finally:
            os.close(parent)
        with open(descriptor, "rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        header = json.loads(data[:_HEADER_BYTES])
        body = memoryview(data)[_HEADER_BYTES:]
        is_true = header == {**key, "size_bytes": len(body), "crc32": crc32(body)}
    except (OSError, ValueError):
        return None
    return data if is_true else None


def _write(directory: str, key: Mapping[str, Any], packed: Mapping[str, Packed]) -> bool:
    """Whether it could be: a directory that is full, or may not be written, is told of and does no harm."""
    body = b"".join([_padded(part) for each in packed.values() for part in each])
    header = json.dumps({**key, "size_bytes": len(body), "crc32": crc32(body)}).encode()
    partial = f"{_file_name(key)}.{os.getpid()}"
    try:
        os.makedirs(directory, mode=0o700, exist_ok=True)
        parent = open_private(directory)
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
            with open(os.open(partial, flags, 0o600, dir_fd=parent), "wb") as file:
                file.write(header.ljust(_HEADER_BYTES) + body)
                file.flush()
                os.fsync(file.fileno())
            os.rename(partial, _file_name(key), src_dir_fd=parent, dst_dir_fd=parent)
        finally:
            os.close(parent)
    except OSError as exc:
        print(f"quickthaw: cannot keep packed weights in {directory}: {exc}", file=sys.stderr)
        return False
    return True


def _padded(part: Tensor) -> bytes:
    data: bytes = part.view(torch.uint8).numpy().tobytes()
    return data + bytes(-len(data) % _ALIGNMENT_BYTES)


def _cut(data: mmap.mmap, matrices: Mapping[str, Int4]) -> dict[str, Packed]:
    found, offset = {}, _HEADER_BYTES
    for name, matrix in matrices.items():
        n_rows, n_groups = matrix.scale.shape
        shapes = (matrix.weight.shape, np.uint8), ((n_groups, n_rows, 2), np.uint16)
        parts = []
        for shape, dtype in shapes:
            # SAFETY: the map is never closed; the CRC has shown that the file is whole.
            array = np.ndarray(shape, dtype, data, offset)
            parts.append(view(array))
            offset += array.nbytes + -array.nbytes % _ALIGNMENT_BYTES
        found[name] = Packed(*parts)
    return found
