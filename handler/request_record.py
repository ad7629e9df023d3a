# SPDX-License-Identifier: Apache-2.0
"""What is noted of a request while it is answered: stamps and references, nothing computed.

`telemetry` makes sense of it once the answer has left, so that a first token waits neither for that nor for
its imports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from time import monotonic_ns
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quickthaw.handler.generation import Completion, Piece
    from quickthaw.handler.request import Request
    from quickthaw.layers.spans import Span


class RequestRecord:
    """One request. Units: nanoseconds of the monotonic clock; 0 is what has not happened."""

    def __init__(self, context: object) -> None:
        self.event_ns = monotonic_ns()
        self.first_compute_ns = 0  # checked and tokenised: from here on the model computes
        self.token_ns: list[int] = []
        self.end_ns = 0  # the last byte has left
        self.context = context
        self.header: Callable[[str], str | None] = _no_header  # by its name in lower case
        self.method: str | None = None
        self.path: str | None = None  # None: not one that is served
        self.request: Request | None = None
        self.completion: Completion | None = None
        self.spans: Sequence[Span] = ()  # up to the first token
        self.has_begun = False  # to answer: its status is 200, whatever happens next
        self.error: Exception | None = None

    def timed(self, pieces: Iterator[Piece]) -> Iterator[Piece]:
        """The pieces, each stamped as it comes; an error on the way is kept and goes on."""
        stamp = self.token_ns.append
        try:
            for piece in pieces:
                if piece.token_id is not None:
                    stamp(monotonic_ns())
                yield piece
        except Exception as exc:
            self.error = exc
            raise


def _no_header(_name: str) -> None:
    """A direct invocation has none."""
