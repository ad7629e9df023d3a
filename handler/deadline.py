# SPDX-License-Identifier: Apache-2.0
"""Whether an invocation still has time for one more token, and within a token for one more layer.

A token is begun when the slowest of this answer so far, and the configured margin for sending the rest,
would still fit before the deadline. The first token takes the whole prompt, and on a cold start reads the
weights: it counts only until a second one was measured. It is itself begun whenever the margin fits: there
is nothing to estimate it from. So it is given up, as any other would be, before a layer that would not fit
if it took as long as the layer before.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic_ns

from quickthaw.handler.errors import OutOfTimeError

Clock = Callable[[], int]


class Deadline:
    """The end of one invocation, and the pace of its answer."""

    def __init__(self, end_ns: int | None, margin_ns: int, clock: Clock = monotonic_ns) -> None:
        """Units: monotonic nanoseconds; an `end_ns` of None never comes."""
        self._end_ns = end_ns
        self._margin_ns = margin_ns
        self._clock = clock
        self._begun_ns = 0
        self._layer_begun_ns = 0
        self._n_tokens = 0
        self._slowest_ns = 0

    def begin_token(self) -> bool:
        """Start measuring a token; False when it would not be done in time."""
        self._begun_ns = self._layer_begun_ns = self._clock()
        return self._has_time(self._begun_ns + self._slowest_ns)

    def begin_layer(self) -> None:
        """Start measuring a layer of that token.

        Raises: OutOfTimeError when it would not be done in time.
        """
        now_ns = self._clock()
        took_ns, self._layer_begun_ns = now_ns - self._layer_begun_ns, now_ns
        if not self._has_time(now_ns + took_ns):
            raise OutOfTimeError

    def end_token(self) -> None:
        """The token is there."""
        took_ns = self._clock() - self._begun_ns
        self._n_tokens += 1
        is_first_estimate = self._n_tokens <= 2
        self._slowest_ns = took_ns if is_first_estimate else max(took_ns, self._slowest_ns)

    def _has_time(self, done_ns: int) -> bool:
        return self._end_ns is None or done_ns + self._margin_ns < self._end_ns
