# SPDX-License-Identifier: Apache-2.0
"""Stop strings: the answer ends before the first of them, and no part of one is ever shown.

Text comes in pieces that know nothing of stop strings, so the end of what is known is held back while it
could still be the beginning of one. Of two that are complete the one that ended first counts, and of those
that end together the longest: the answer does not depend on where the pieces were cut.
"""

from __future__ import annotations

from collections.abc import Sequence


class StopStrings:
    """The text of one answer on its way to the reader."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = stops
        self._held = ""
        self.is_over = False  # a stop string has come

    @property
    def is_holding(self) -> bool:
        """Whether text waits for what comes after it."""
        return bool(self._held)

    def push(self, text: str) -> str:
        """What may be shown now that `text` has come; nothing more once a stop string was complete."""
        if self.is_over:
            return ""
        known = self._held + text
        found = [(at + len(stop), at) for stop in self._stops if (at := known.find(stop)) >= 0]
        if found:
            self.is_over = True
            self._held = ""
            return known[: min(found)[1]]
        shown = len(known) - self._beginning(known)
        self._held = known[shown:]
        return known[:shown]

    def finish(self) -> str:
        """What was held back, now that no more text comes."""
        held, self._held = self._held, ""
        return held

    def _beginning(self, known: str) -> int:
        """How many characters at the end of `known` could begin a stop string."""
        longest = max(map(len, self._stops), default=1) - 1
        for length in range(min(longest, len(known)), 0, -1):
            tail = known[-length:]
            if any(stop.startswith(tail) for stop in self._stops):
                return length
        return 0
