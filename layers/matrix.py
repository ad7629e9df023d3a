# SPDX-License-Identifier: Apache-2.0
"""A matrix of a shard as it is mapped, whatever its dtype; `matrix_dtype.py` draws how it is stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from quickthaw.layers.matrix_dtype import MINIMUM, SCALE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from quickthaw.layers.arrays import Array, Weight
    from quickthaw.layers.shard import Shard


class Int8(NamedTuple):
    """Shapes: (n_out, n_in) i8, (n_out,) f32."""

    weight: Weight
    scale: Array


class Int4(NamedTuple):
    """Shapes: (n_out, n_in / 2) u8, and twice (n_out, n_groups) f16."""

    weight: Weight
    scale: Weight
    minimum: Weight


def tiles(matrix: Weight | Int8 | Int4, tile_bytes: int) -> Iterator[Weight | Int8 | Int4]:
    """Runs of its rows, one after the other."""
    weight = matrix.weight if isinstance(matrix, Int8 | Int4) else matrix
    n_rows = max(1, tile_bytes // weight[0].nbytes)
    for begin in range(0, len(weight), n_rows):
        rows = slice(begin, begin + n_rows)
        if isinstance(matrix, Int8):
            yield Int8(*[part[rows] for part in matrix])
        elif isinstance(matrix, Int4):
            yield Int4(*[part[rows] for part in matrix])
        else:
            yield matrix[rows]


def matrix_of(shard: Shard, name: str) -> Weight | Int8 | Int4:
    """Raises: ShardError."""
    weight = shard.tensor(name)
    if shard.has(name + MINIMUM):
        return Int4(weight, shard.tensor(name + SCALE), shard.tensor(name + MINIMUM))
    if shard.has(name + SCALE):
        return Int8(weight, shard.tensor(name + SCALE))
    return weight
