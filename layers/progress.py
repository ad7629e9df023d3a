# SPDX-License-Identifier: Apache-2.0
"""Says how far a long piece of work has come: a bar on a terminal, nothing in a pipe."""

from __future__ import annotations

import sys
from typing import Any, Protocol


class Progress(Protocol):
    """Told of bytes as they are done."""

    def start(self, total_bytes: int) -> None:
        """The work is known to be this much."""

    def advance(self, size_bytes: int) -> None:
        """So much more of it is done."""

    def finish(self) -> None:
        """It is over, done or not."""


class Quiet:
    """Says nothing."""

    def start(self, total_bytes: int) -> None:
        """Says nothing."""

    def advance(self, size_bytes: int) -> None:
        """Says nothing."""

    def finish(self) -> None:
        """Says nothing."""


class Bar:
    """A tqdm bar on stderr."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._bar: Any = None

    def start(self, total_bytes: int) -> None:
        """Draws the empty bar."""
        # Imported here: needed to split, never to answer.
        from tqdm import tqdm  # type: ignore[import-untyped]

        self._bar = tqdm(total=total_bytes, desc=self._label, unit="B", unit_scale=True, leave=False)

    def advance(self, size_bytes: int) -> None:
        """Draws more of it, now and then."""
        self._bar.update(size_bytes)

    def finish(self) -> None:
        """Takes it away."""
        if self._bar is not None:
            self._bar.close()


def for_terminal(label: str) -> Progress:
    """A bar when stderr is a terminal."""
    return Bar(label) if sys.stderr.isatty() else Quiet()
