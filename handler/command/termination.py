# SPDX-License-Identifier: Apache-2.0
"""SIGTERM as an end like any other: what was begun is undone, what was started is ended."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

_TERMINATED = 143  # 128 + SIGTERM, as a shell reports it


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Make SIGTERM unwind the stack, as SIGINT does: Python's default would leave a function behind."""

    def exit_now(*_: object) -> None:
        raise SystemExit(_TERMINATED)

    before = signal.signal(signal.SIGTERM, exit_now)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
