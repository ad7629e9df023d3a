# SPDX-License-Identifier: Apache-2.0
"""What a manifest says of one shard's file: its size and digest, and where each of its tensors lies.

An offset counts bytes from the start of the file. Matrices are stored in the set's dtype as `matrix_dtype.py`
draws it, vectors are F32 always, and every tensor starts on 64 bytes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from quickthaw.layers.architecture import FusedShape
from quickthaw.layers.errors import ManifestError
from quickthaw.layers.matrix_dtype import size_bytes, stored_tensors
from quickthaw.layers.record import Record

ALIGNMENT_BYTES = 64  # a cache line, and the widest vector register
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
        stored = {name: stored_tensors(name, fused.shape, dtype) for name, fused in table.items()}
        expected = {part: described for parts in stored.values() for part, described in parts.items()}
        names, needed = self.tensors.keys(), {part for name in required for part in stored[name]}
        if not needed <= names <= expected.keys():
            odd = sorted((needed - names) or (names - expected.keys()))
            problem = "lacks" if needed - names else "has unknown"
            raise ManifestError(
                f"shard {problem} tensors", where=f"{path}, {self.file}", found=", ".join(odd), advice=RESPLIT
            )
        end_bytes = 0
        for name, entry in sorted(self.tensors.items(), key=lambda item: item[1].offset_bytes):
            if entry[:2] != expected[name]:
                raise _tensor_error(
                    "has the wrong dtype or shape", path, self, name, expected[name], entry[:2]
                )
            offset = entry.offset_bytes
            if offset % ALIGNMENT_BYTES:
                raise _tensor_error(
                    "is not aligned", path, self, name, f"a multiple of {ALIGNMENT_BYTES}", offset
                )
            if offset < end_bytes:
                raise _tensor_error(
                    "overlaps another", path, self, name, f"an offset from {end_bytes}", offset
                )
            end_bytes = offset + size_bytes(expected[name])
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
