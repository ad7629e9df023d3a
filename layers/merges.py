# SPDX-License-Identifier: Apache-2.0
"""Byte-pair encoding of one word: joins the pair of neighbours that was learned first, until none is left.

The tables are those of tokenizer_tables.py. The time is n log n in the length of the word.
Source: Sennrich et al. 2016; ties go to the leftmost pair, as in the `tokenizers` package.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from quickthaw.layers.tokenizer_tables import pair_home

_POSITION_BITS = 40
_POSITION_MASK = (1 << _POSITION_BITS) - 1


class Merges:
    """The merges of a model. `n_homes` counts the slots that a search may begin in."""

    def __init__(
        self, pairs: Sequence[int], merged: Sequence[int], ranks: Sequence[int], n_homes: int
    ) -> None:
        self._pairs = pairs
        self._merged = merged
        self._ranks = ranks
        self._n_homes = n_homes

    def _rank(self, left: int, right: int) -> int:
        """The rank of a pair, or -1: this is the innermost loop, an exception or None would cost more."""
        pair = left << 32 | right
        slot = pair_home(pair, self._n_homes)
        while entry := self._ranks[slot]:
            if self._pairs[entry - 1] == pair:
                return entry - 1
            slot += 1
        return -1

    def apply(self, word: Sequence[int]) -> list[int]:
        """The tokens of a word that is given as the tokens of its single symbols."""
        n_symbols = len(word)
        # The -1 at the end is the last symbol's neighbour and, as index -1, the first one's. It has no pair.
        tokens = [*word, -1]
        following = list(range(1, n_symbols + 1))
        preceding = list(range(-1, n_symbols))
        heap = [
            rank << _POSITION_BITS | left
            for left, right in enumerate(range(1, n_symbols))
            if (rank := self._rank(tokens[left], tokens[right])) >= 0
        ]

        def offer(left: int, right: int) -> None:
            if tokens[left] >= 0 and tokens[right] >= 0:
                rank = self._rank(tokens[left], tokens[right])
                if rank >= 0:
                    heappush(heap, rank << _POSITION_BITS | left)

        heapify(heap)
        while heap:
            entry = heappop(heap)
            rank, left = entry >> _POSITION_BITS, entry & _POSITION_MASK
            if tokens[left] < 0:
                continue  # became part of its left neighbour
            right = following[left]
            if self._pairs[rank] != tokens[left] << 32 | tokens[right]:
                continue  # one of the two has grown since
            tokens[left], tokens[right] = self._merged[rank], -1
            following[left] = beyond = following[right]
            preceding[beyond] = left
            offer(preceding[left], left)
            offer(left, beyond)
        return [token for token in tokens if token >= 0]
