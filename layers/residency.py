# SPDX-License-Identifier: Apache-2.0
"""Which layers stay in memory: the policy. It names them; `shard_set.py` does it.

Layers are used one after the other, and the first one again after the last. So what was used last is used
again last: it goes first, and what is next stays. Plain LRU would let go of each layer just before its turn.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from quickthaw.layers import memory
from quickthaw.layers.errors import MemoryBudgetError

TILE_BYTES = 16 << 20  # of the head, which is streamed where memory is short


class Plan(NamedTuple):
    """What to do before a layer is computed; both in the order of the layers' turns."""

    evict: list[int]
    load: list[int]


def plan(
    sizes: Sequence[int], held: Collection[int], current: int, window: int, capacity_bytes: int | None
) -> Plan:
    """`held` are in memory; `current` is to be there, and up to `window` after it as far as there is room."""
    order = [(current + step) % len(sizes) for step in range(len(sizes))]
    n_wanted, free_bytes = 1, _less(capacity_bytes, sizes[current])
    for index in order[1 : 1 + window]:
        if free_bytes is not None and sizes[index] > free_bytes:
            break
        n_wanted, free_bytes = n_wanted + 1, _less(free_bytes, sizes[index])
    evict = []
    for index in order[n_wanted:]:
        if index not in held:
            continue
        if free_bytes is not None and sizes[index] > free_bytes:
            evict.append(index)
        else:
            free_bytes = _less(free_bytes, sizes[index])
    return Plan(evict, [index for index in order[:n_wanted] if index not in held])


def _less(free_bytes: int | None, size_bytes: int) -> int | None:
    return None if free_bytes is None else free_bytes - size_bytes


class Budget:
    """What the layers of one model may take of the memory that this process was given."""

    def __init__(self, limit_bytes: int, layer_sizes: Sequence[int], head_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._layer_sizes = layer_sizes
        self._head_bytes = head_bytes

    def check(self) -> None:
        """Can there ever be an answer? Raises: MemoryBudgetError, with the numbers."""
        own_bytes = memory.anonymous_bytes()
        largest, tile = max(self._layer_sizes), min(TILE_BYTES, self._head_bytes)
        if own_bytes + largest + tile > self._limit_bytes:
            own, layer, head, limit = (
                -(-n_bytes >> 20) for n_bytes in (own_bytes, largest, tile, self._limit_bytes)
            )
            raise MemoryBudgetError(
                "the memory budget is too small for any answer",
                expected=f"at least {own + layer + head} MiB: {own} that the interpreter takes, "
                f"{layer} for a layer and {head} for a part of the head",
                found=f"{limit} MiB",
                advice="give the function more memory, or raise QUICKTHAW_MEMORY_MIB",
            )

    def capacity_bytes(self, copied_bytes: int) -> int | None:
        """Room for layers now; None where all of the model fits. `copied_bytes` of them are anonymous."""
        own_bytes = memory.anonymous_bytes() - copied_bytes
        if own_bytes + sum(self._layer_sizes) + self._head_bytes <= self._limit_bytes:
            return None
        return self._limit_bytes - own_bytes - min(TILE_BYTES, self._head_bytes)
