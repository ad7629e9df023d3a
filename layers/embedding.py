# SPDX-License-Identifier: Apache-2.0
"""The rows of the embedding that a sequence begins with, gathered: no other row is touched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from quickthaw.layers.shard import Shard

if TYPE_CHECKING:
    from quickthaw.layers.arrays import Array


def rows(embedding: Shard, token_ids: Sequence[int]) -> Array:
    """Shapes: (n_tokens, hidden_size) f32, a copy."""
    found = embedding.tensor("embedding")[np.asarray(token_ids)]
    wide: Array = (found.astype(np.uint32) << 16).view(np.float32) if found.dtype == np.uint16 else found
    return wide
