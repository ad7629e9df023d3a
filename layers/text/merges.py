# SPDX-License-Identifier: Apache-2.0
"""Byte-pair encoding of one word: joins the pair of neighbours that was learned first, until none is left.

The tables are those of tokenizer_tables.py. The time is n log n in the length of the word.
Source: Sennrich et al. 2016; ties go to the leftmost pair, as in the `tokenizers` package.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

from quickthaw.layers.text.tokenizer_tables import pair_home

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

    def _rank(self, pair: int) -> int:
        """The rank of a pair, or -1: this is the innermost loop, an exception or None would cost more."""
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
        ranks: dict[int, int] = {}  # looked up before: a long word is full of the same pairs
        heap: list[int] = []

        def offer(left: int, right: int) -> None:
            pair = tokens[left] << 32 | tokens[right]
            if pair < 0:
                return
            rank = ranks.get(pair)
            if rank is None:
                rank = ranks[pair] = self._rank(pair)
            if rank >= 0:
                heappush(heap, rank << _POSITION_BITS | left)

        for left in range(n_symbols - 1):
            offer(left, left + 1)
        while heap:
            entry = heappop(heap)
            rank, left = entry >> _POSITION_BITS, entry & _POSITION_MASK
            right = following[left]
            if self._pairs[rank] != tokens[left] << 32 | tokens[right]:
                continue  # one of the two has grown since, or became part of the other
            tokens[left], tokens[right] = self._merged[rank], -1
            following[left] = beyond = following[right]
            preceding[beyond] = left
            offer(preceding[left], left)
            offer(left, beyond)
        return [token for token in tokens if token >= 0]
