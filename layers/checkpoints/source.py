# SPDX-License-Identifier: Apache-2.0
"""What a checkpoint of any format offers to be split: a model, and where the parts of its tensors lie."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from io import FileIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from quickthaw.layers.architecture import BIASES, FusedShape, ModelConfig, embedding_tensors, layer_tensors
from quickthaw.layers.checkpoints.shard_file import Tile
from quickthaw.layers.errors import CheckpointError

# Large enough that Python's share of the time is small; everything held at once is a few times this.
TILE_BYTES = 4 << 20

Decode = Callable[[npt.NDArray[np.uint8]], Tile]
Reorder = Callable[[Tile], Tile]


class StoredTensor(NamedTuple):
    """A tensor in a checkpoint's file: contiguous rows of `row_bytes`, which `decode` turns into f32.

    Where rows lie in another order than ours, `reorder` puts whole groups of `group_rows` rows right.
    """

    name: str
    path: Path
    offset_bytes: int
    shape: tuple[int, ...]
    row_bytes: int
    decode: Decode
    reorder: Reorder | None = None
    group_rows: int = 1

    def tiles(self) -> Iterator[Tile]:
        """The tensor's rows in order, in tiles of about TILE_BYTES; a vector is one tile.

        Raises: CheckpointError when the file ends before the tensor does, or a value is infinite or NaN.
        """
        n_rows, n_columns = self.shape if len(self.shape) == 2 else (1, self.shape[0])
        groups_per_tile = max(1, TILE_BYTES // (4 * n_columns * self.group_rows))
        tile_rows = groups_per_tile * self.group_rows
        with self._file() as file:
            for first_row in range(0, n_rows, tile_rows):
                n_tile_rows = min(tile_rows, n_rows - first_row)
                raw = self._read(file, n_tile_rows)
                tile = self.decode(raw)  # (n_tile_rows, n_columns)
                if not np.isfinite(tile).all():
                    raise CheckpointError(
                        f"tensor {self.name} has values that are infinite or no numbers",
                        where=self.path,
                        advice="the checkpoint is damaged, or its training failed",
                    )
                tile = tile.reshape(n_tile_rows, n_columns) if len(self.shape) == 2 else tile.reshape(-1)
                yield tile if self.reorder is None else self.reorder(tile)

    def _file(self) -> FileIO:
        try:
            file = FileIO(self.path)
            file.seek(self.offset_bytes)
        except OSError as exc:
            raise _unreadable(self.path, exc.strerror) from exc
        return file

    def _read(self, file: FileIO, n_rows: int) -> npt.NDArray[np.uint8]:
        raw = np.empty((n_rows, self.row_bytes), np.uint8)
        view = raw.data.cast("B")
        while view:
            try:
                n_bytes = file.readinto(view)
            except OSError as exc:
                raise _unreadable(self.path, exc.strerror) from exc
            if not n_bytes:
                raise _unreadable(self.path, "an end inside a tensor")
            view = view[n_bytes:]
        return raw


def _unreadable(path: Path, found: str | None) -> CheckpointError:
    return CheckpointError("cannot read a tensor of a checkpoint", where=path, found=found)


ShardParts = dict[str, tuple[StoredTensor, ...]]


class Source(NamedTuple):
    """A checkpoint, understood: for each shard the canonical tensors and the parts they are fused from."""

    model: ModelConfig
    eos_token_ids: tuple[int, ...]
    tokenizer: Path | Mapping[str, Any] | None  # what `tokenizer_source.write_tables` reads
    chat_template: str | None
    special_tokens: Mapping[str, str]  # as a chat template names them: bos_token and so on
    shards: tuple[ShardParts, ...]
    notes: tuple[str, ...] = ()  # what it asks for that is left to the request


class Names(NamedTuple):
    """A format's names for the parts of the canonical tensors; `{}` stands for the layer's number."""

    embedding: Mapping[str, tuple[str, ...]]
    layer: Mapping[str, tuple[str, ...]]


def arrange(
    model: ModelConfig,
    stored: Mapping[str, StoredTensor],
    names: Names,
    biases: frozenset[str] | None,
    where: Path,
) -> tuple[ShardParts, ...]:
    """The parts of each shard's tensors; `biases` are those every layer has, or None to take what is there.

    Raises: CheckpointError when a tensor is absent, has another shape, or is not one of the model's.
    """
    remaining = dict(stored)
    shards = [_shard_parts(embedding_tensors(model), names.embedding, remaining, frozenset(), where)]
    table = layer_tensors(model)
    optional = BIASES if biases is None else frozenset[str]()
    if biases is not None:
        table = {name: fused for name, fused in table.items() if name not in BIASES - biases}
    for index in range(model.n_layers):
        layer_names = {key: tuple(part.format(index) for part in parts) for key, parts in names.layer.items()}
        shards.append(_shard_parts(table, layer_names, remaining, optional, where))
    if remaining:
        raise CheckpointError(
            "checkpoint has tensors that the model's configuration does not explain",
            where=where,
            found=_some(sorted(remaining)),
            advice="they would be left out of the computation, so the answer would be wrong",
        )
    return tuple(shards)


def _shard_parts(
    table: Mapping[str, FusedShape],
    names: Mapping[str, tuple[str, ...]],
    remaining: dict[str, StoredTensor],
    optional: frozenset[str],
    where: Path,
) -> ShardParts:
    """Takes one shard's tensors out of `remaining`."""
    shard: ShardParts = {}
    for name, fused in table.items():
        if name in optional and not any(part in remaining for part in names[name]):
            continue
        shard[name] = tuple(
            _take(part, _part_shape(fused, n_rows), remaining, where)
            for part, n_rows in zip(names[name], fused.part_rows, strict=True)
        )
    return shard


def _part_shape(fused: FusedShape, n_rows: int) -> tuple[int, ...]:
    return (n_rows,) if fused.n_columns is None else (n_rows, fused.n_columns)


def _take(part: str, shape: tuple[int, ...], remaining: dict[str, StoredTensor], where: Path) -> StoredTensor:
    stored = remaining.pop(part, None)
    if stored is None:
        raise CheckpointError(
            f"checkpoint lacks the tensor {part}", where=where, expected=f"shape {shape}", found="none"
        )
    if stored.shape != shape:
        raise CheckpointError(
            f"tensor {part} has the wrong shape", where=stored.path, expected=shape, found=stored.shape
        )
    return stored


def _some(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
