# SPDX-License-Identifier: Apache-2.0
"""How often, and for how long, S3 is asked again for what it did not give.

Pauses are random, up to twice as long each time.
Source: https://docs.aws.amazon.com/sdkref/latest/guide/feature-retry-behavior.html
"""

from __future__ import annotations

import time
from typing import NamedTuple

from quickthaw.layers.errors import StorageError, StorageTimeoutError


class Patience(NamedTuple):
    """Limits for one range of an object."""

    connect_s: float = 3.0
    silence_s: float = 10.0  # between two pieces of an answer
    give_up_s: float = 60.0  # after the range was first asked for
    n_failures: int = 6  # in a row, none of which brought a byte
    pause_s: float = 0.1  # at most, before the second attempt; each later one doubles it
    longest_pause_s: float = 5.0


class Attempts:
    """Those at one range."""

    def __init__(self, patience: Patience) -> None:
        self.deadline_s = time.monotonic() + patience.give_up_s
        self._patience = patience
        self._n_failures = 0

    def wait(self, error: StorageError, *, has_gained: bool) -> None:
        """Pauses after a failure. Raises: `error` when there is to be no other attempt."""
        import random  # 3 ms that a start without a failure does not pay

        self._n_failures = 1 if has_gained else self._n_failures + 1
        if self._n_failures >= self._patience.n_failures:
            raise error
        longest_s = self._patience.pause_s * 2 ** (self._n_failures - 1)
        pause_s = random.uniform(0, min(longest_s, self._patience.longest_pause_s))
        if time.monotonic() + pause_s > self.deadline_s:
            raise StorageTimeoutError(
                "the storage of a shard takes too long",
                where=error.where,
                expected=f"an answer within {self._patience.give_up_s:g} s",
                found=error.found,
            ) from error
        time.sleep(pause_s)
