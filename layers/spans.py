# SPDX-License-Identifier: Apache-2.0
"""What the time went into: named stretches, collected until somebody reports them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple


class Span(NamedTuple):
    """How long a piece of work took, on the clock of time.monotonic_ns, and the bytes it mapped or read."""

    name: str
    start_ns: int
    end_ns: int
    size_bytes: int


class Spans:
    """The spans so far."""

    def __init__(self) -> None:
        self._spans: list[Span] = []

    @contextmanager
    def timed(self, name: str, size_bytes: int = 0) -> Iterator[None]:
        """Adds a span for the body, unless it raises."""
        start_ns = time.monotonic_ns()
        yield
        self._spans.append(Span(name, start_ns, time.monotonic_ns(), size_bytes))

    def take(self) -> list[Span]:
        """All of them, once: the next ones begin a new collection."""
        taken, self._spans = self._spans, []
        return taken
