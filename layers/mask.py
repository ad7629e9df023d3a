# SPDX-License-Identifier: Apache-2.0
"""Which tokens a query may see: those up to its own, of which a window leaves only the newest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from quickthaw.layers.arrays import Array


def first_seen(start: int, window: int | None) -> int:
    """The oldest token that a query at position `start`, or any after it, sees."""
    return 0 if window is None else max(0, start + 1 - window)


def mask(start: int, end: int, first: int, window: int | None) -> Array:
    """-inf for a token that a query must not see, being after it or out of its window; 0 for the others.

    Shapes: (end - start, end - first), for queries from `start` and tokens from `first`, up to `end`.
    """
    queries, tokens = np.arange(start, end)[:, None], np.arange(first, end)
    is_seen = tokens <= queries
    if window is not None:
        is_seen &= tokens > queries - window
    return np.where(is_seen, np.float32(0), np.float32(-np.inf))
