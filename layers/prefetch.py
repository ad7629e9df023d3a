# SPDX-License-Identifier: Apache-2.0
"""Loads shards before they are needed, in the order of their turns, several at once.

Threads end when nothing is wanted any more, and before the process forks: a capture has none. What fails
here is told to nobody: whoever needs the shard tries again, and is told.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from threading import Lock, Thread
from weakref import ref

from quickthaw.layers.errors import ShardError

N_THREADS = 4  # reads in flight: a disk, or a server, is not at its best with fewer
_WINDOW_LIMIT = 64
_WEIGHT = 0.25  # of the newest measurement


class Pace:
    """How far ahead loading has to be so that computing never waits, from how long either takes."""

    def __init__(self) -> None:
        self._load_s = 0.0
        self._compute_s = 0.0

    def loaded(self, elapsed_s: float) -> None:
        """A shard took so long to load."""
        self._load_s += _WEIGHT * (elapsed_s - self._load_s)

    def computed(self, elapsed_s: float) -> None:
        """A layer took so long to compute."""
        self._compute_s += _WEIGHT * (elapsed_s - self._compute_s)

    @property
    def window(self) -> int:
        """Layers beyond the one at hand: as many as are computed during a load, and one for each thread."""
        if self._compute_s == 0.0:
            return N_THREADS
        n_computed = min(self._load_s / self._compute_s, _WINDOW_LIMIT)
        return min(int(n_computed) + N_THREADS, _WINDOW_LIMIT)


class Prefetcher:
    """Calls what is wanted, in its order, on a few threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._wanted: deque[Callable[[], object]] = deque()
        self._threads: list[Thread] = []
        this = ref(self)  # what is registered stays; a prefetcher need not
        os.register_at_fork(before=lambda: _release(this()))

    def want(self, loads: Iterable[Callable[[], object]]) -> None:
        """These come next; of what was wanted before, only what has begun goes on."""
        with self._lock:
            self._wanted = deque(loads)
            self._threads = [thread for thread in self._threads if thread.is_alive()]
            for _ in range(min(N_THREADS, len(self._wanted)) - len(self._threads)):
                thread = Thread(target=self._live, name="quickthaw-prefetch", daemon=True)
                thread.start()
                self._threads.append(thread)

    def release(self) -> None:
        """Ends the threads, once they are done with what they have begun."""
        with self._lock:
            self._wanted.clear()
            threads = self._threads
        for thread in threads:
            thread.join()

    def _live(self) -> None:
        while (load := self._next()) is not None:
            with suppress(ShardError):
                load()

    def _next(self) -> Callable[[], object] | None:
        with self._lock:
            return self._wanted.popleft() if self._wanted else None


def _release(prefetcher: Prefetcher | None) -> None:
    if prefetcher is not None:
        prefetcher.release()
