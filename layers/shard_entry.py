# SPDX-License-Identifier: Apache-2.0
"""What a manifest says of one shard's file: its size and digest, and where each of its tensors lies.

An offset counts bytes from the start of the file. Matrices have the set's dtype, vectors are F32 always, and
every tensor starts on 64 bytes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from quickthaw.layers.architecture import FusedShape
from quickthaw.layers.errors import ManifestError
from quickthaw.layers.record import Record

ALIGNMENT_BYTES = 64  # a cache line, and the widest vector register
ITEM_BYTES = {"BF16": 2, "F32": 4}
MATRIX_DTYPES = {"bf16": "BF16", "f32": "F32"}
_FIELDS = frozenset(("file", "size_bytes", "sha256", "tensors"))
_TENSOR_FIELDS = frozenset(("dtype", "shape", "offset"))
RESPLIT = "the shard set is damaged: make it again with `quickthaw shard`"


class TensorEntry(NamedTuple):
    """Where one tensor lies in its shard's file."""

    dtype: str
    shape: tuple[int, ...]
    offset_bytes: int


class ShardEntry(NamedTuple):
    """One shard's file, and the tensors in it."""

    file: str
    size_bytes: int
    sha256: str
    tensors: dict[str, TensorEntry]

    def to_json(self) -> dict[str, Any]:
        """The object that a manifest holds."""
        tensors = {
            name: {"dtype": entry.dtype, "shape": list(entry.shape), "offset": entry.offset_bytes}
            for name, entry in self.tensors.items()
        }
        return {"file": self.file, "size_bytes": self.size_bytes, "sha256": self.sha256, "tensors": tensors}

    @classmethod
    def from_json(cls, record: Record) -> ShardEntry:
        """Raises: the record's error when `to_json` did not write it."""
        record.exactly(_FIELDS)
        tensors = {name: _tensor_entry(entry) for name, entry in record.child("tensors").entries()}
        return cls(record.text("file"), record.integer("size_bytes"), record.sha256("sha256"), tensors)

    def check(self, table: dict[str, FusedShape], required: frozenset[str], dtype: str, path: str) -> None:
        """Are its tensors those of `table`, each aligned and in a place of its own? `path` is the manifest's.

        Raises: ManifestError.
        """
        names = self.tensors.keys()
        if not required <= names <= table.keys():
            odd = sorted((required - names) or (names - table.keys()))
            problem = "lacks" if required - names else "has unknown"
            raise ManifestError(
                f"shard {problem} tensors", where=f"{path}, {self.file}", found=", ".join(odd), advice=RESPLIT
            )
        end_bytes = 0
        for name, entry in sorted(self.tensors.items(), key=lambda item: item[1].offset_bytes):
            shape = table[name].shape
            expected = (MATRIX_DTYPES[dtype] if len(shape) == 2 else "F32", shape)
            if entry[:2] != expected:
                raise _tensor_error("has the wrong dtype or shape", path, self, name, expected, entry[:2])
            n_bytes = ITEM_BYTES[entry.dtype]
            for n_items in shape:
                n_bytes *= n_items
            offset = entry.offset_bytes
            if offset % ALIGNMENT_BYTES:
                raise _tensor_error(
                    "is not aligned", path, self, name, f"a multiple of {ALIGNMENT_BYTES}", offset
                )
            if offset < end_bytes:
                raise _tensor_error(
                    "overlaps another", path, self, name, f"an offset from {end_bytes}", offset
                )
            end_bytes = offset + n_bytes
            if end_bytes > self.size_bytes:
                raise _tensor_error(
                    "lies outside its file", path, self, name, f"an end up to {self.size_bytes}", end_bytes
                )


def _tensor_entry(record: Record) -> TensorEntry:
    record.exactly(_TENSOR_FIELDS)
    return TensorEntry(record.text("dtype"), record.integers("shape"), record.integer("offset"))


def _tensor_error(
    problem: str, path: str, shard: ShardEntry, name: str, expected: object, found: object
) -> ManifestError:
    return ManifestError(
        f"tensor {name} {problem}",
        where=f"{path}, {shard.file}",
        expected=expected,
        found=found,
        advice=RESPLIT,
    )
