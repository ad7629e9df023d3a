# SPDX-License-Identifier: Apache-2.0
"""Quantised matrices for the tests, and what each weight stands for."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from quickthaw.layers.checkpoints import quantizer
from quickthaw.layers.checkpoints.quantizer import Loss
from quickthaw.layers.matrix import Int4, Int8

Array = npt.NDArray[np.float32]


def quantised(weights: Array, dtype: str, loss: Loss | None = None) -> tuple[Int8 | Int4, Array]:
    """A matrix as splitting stores it, and its values."""
    tensors = quantizer.quantised("m", weights.shape, dtype, [weights], loss or Loss())
    stored = [np.concatenate(list(tensor.tiles)) for tensor in tensors]
    matrix = Int8(*stored) if dtype == "int8" else Int4(*stored)
    return matrix, values(matrix)


def values(matrix: Int8 | Int4) -> Array:
    """What each weight stands for, worked out as `layers/matrix_dtype.py` draws it."""
    if isinstance(matrix, Int8):
        return (matrix.weight * matrix.scale[:, None]).astype(np.float32)
    steps = np.stack((matrix.weight & 15, matrix.weight >> 4), axis=-1).reshape(len(matrix.weight), -1)
    group = steps.shape[1] // matrix.scale.shape[1]
    scale, minimum = (part.astype(np.float32).repeat(group, axis=1) for part in matrix[1:])
    return steps.astype(np.float32) * scale + minimum
