# SPDX-License-Identifier: Apache-2.0
"""f32 → int8 or int4, a tile of rows at a time, and how much of the weights that changed.

Each row of int8 has the scale that its largest weight needs. Each group of int4 takes the better of two fits:

    from its least weight to its greatest, in 15 steps       exact for what was Q4_1 in a GGUF file
    from its weight of the greatest magnitude towards the
        other sign, which is 8 steps from zero               exact for what was Q4_0
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from quickthaw.layers.checkpoints.shard_file import NewTensor, Tile
from quickthaw.layers.matrix_dtype import GROUP_COLUMNS, MINIMUM, SCALE, stored_tensors

Halves = npt.NDArray[np.float16]
Steps = npt.NDArray[np.float32]
_UNNAMED = np.float32(1)  # the step of a group or row that is all zeros


class Loss:
    """How far quantised weights are from what they were, over all that were counted."""

    def __init__(self) -> None:
        self._error = self._total = 0.0

    @property
    def relative(self) -> float:
        """Root mean square of the error, over that of the weights."""
        return float((self._error / self._total) ** 0.5) if self._total else 0.0

    def count(self, weights: Tile, stored: Tile) -> None:
        """Take in what some weights became."""
        self._error += float(np.square(stored - weights, dtype=np.float64).sum())
        self._total += float(np.square(weights, dtype=np.float64).sum())


def quantised(
    name: str, shape: tuple[int, ...], dtype: str, tiles: Iterable[Tile], loss: Loss
) -> list[NewTensor]:
    """The tensors of one matrix, to be written in this order: what comes last is known when the first is.

    Raises: while their tiles are taken, OverflowError for a weight that is too large.
    """
    parts: list[list[npt.NDArray[Any]]] = [[], []]

    def weights() -> Iterator[npt.NDArray[Any]]:
        for tile in tiles:
            made = _int8(tile, loss) if dtype == "int8" else _int4(tile, GROUP_COLUMNS[dtype], loss)
            for part, values in zip(parts, made[1:], strict=False):
                part.append(values)
            yield made[0]

    sources: dict[str, Iterable[npt.NDArray[Any]]] = {
        name: weights(),
        name + SCALE: parts[0],
        name + MINIMUM: parts[1],
    }
    described = stored_tensors(name, shape, dtype)
    return [NewTensor(part, *described[part], sources[part]) for part in described]


def _int8(tile: Tile, loss: Loss) -> list[npt.NDArray[Any]]:
    largest = np.abs(tile).max(axis=1)
    bits = (largest / np.float32(127)).view(np.uint32)
    scale = ((bits + np.uint32(0xFFFF)) & np.uint32(0xFFFF0000)).view(np.float32)  # the next bf16 up
    if not np.isfinite(scale).all():
        raise OverflowError(f"{float(largest.max())} has no int8")
    scale[scale == 0] = _UNNAMED
    steps = np.rint(tile / scale[:, None])
    loss.count(tile, steps * scale[:, None])
    return [steps.astype(np.int8), scale]


def _int4(tile: Tile, group: int, loss: Loss) -> list[npt.NDArray[Any]]:
    groups = tile.reshape(len(tile), -1, group)
    least, greatest = groups.min(axis=2), groups.max(axis=2)
    ranged = _fit(groups, (greatest - least) / np.float32(15), least)
    extreme: Steps = np.where(greatest > -least, greatest, least).astype(np.float32)
    centred = _fit(groups, extreme / np.float32(-8), extreme)
    is_centred = centred[3] < ranged[3]
    steps = np.where(is_centred[..., None], centred[0], ranged[0])
    scale, minimum = np.where(is_centred, centred[1], ranged[1]), np.where(is_centred, centred[2], ranged[2])
    loss.count(groups, steps * scale[..., None].astype(np.float32) + minimum[..., None].astype(np.float32))
    pairs = steps.reshape(len(tile), -1, 2).astype(np.uint8)
    return [pairs[..., 0] | (pairs[..., 1] << 4), scale, minimum]


def _fit(groups: Tile, step: Steps, first: Steps) -> tuple[Steps, Halves, Halves, Steps]:
    """The steps of each weight from the first one, both as they are stored, and the squared error."""
    with np.errstate(over="ignore"):  # looked for right away
        scale, minimum = step.astype(np.float16), first.astype(np.float16)
    if not (np.isfinite(scale).all() and np.isfinite(minimum).all()):
        raise OverflowError(f"{float(np.abs(groups).max())} has no int4")
    scale[scale == 0] = _UNNAMED
    wide_scale, wide_minimum = scale[..., None].astype(np.float32), minimum[..., None].astype(np.float32)
    steps = np.clip(np.rint((groups - wide_minimum) / wide_scale), 0, 15)
    error = np.square(steps * wide_scale + wide_minimum - groups).sum(axis=2)
    return steps, scale, minimum, error
