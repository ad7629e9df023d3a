# SPDX-License-Identifier: Apache-2.0
"""The rows of the embedding that a sequence begins with, gathered: no other row is touched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from quickthaw.layers.matrix import Int4, Int8, matrix_of
from quickthaw.layers.shard import Shard

if TYPE_CHECKING:
    from quickthaw.layers.arrays import Array


def rows(embedding: Shard, token_ids: Sequence[int]) -> Array:
    """Shapes: (n_tokens, hidden_size) f32, a copy."""
    ids = np.asarray(token_ids)
    matrix = matrix_of(embedding, "embedding")
    if isinstance(matrix, Int8):
        scaled: Array = matrix.weight[ids] * matrix.scale[ids][:, None]
        return scaled
    assert not isinstance(matrix, Int4), "an embedding is never in int4"
    found = matrix[ids]
    wide: Array = (found.astype(np.uint32) << 16).view(np.float32) if found.dtype == np.uint16 else found
    return wide
