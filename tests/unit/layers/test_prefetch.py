# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import threading
from collections.abc import Callable
from threading import Event, Lock

import pytest

from quickthaw.layers.errors import StorageError
from quickthaw.layers.prefetch import N_THREADS, Pace, Prefetcher


def prefetch_threads() -> int:
    return sum(thread.name == "quickthaw-prefetch" for thread in threading.enumerate())


class Loads:
    """Loads that wait until they may end, and remember the order they began in."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.may_end = Event()
        self.n_begun = threading.Semaphore(0)
        self._lock = Lock()

    def of(self, number: int) -> Callable[[], None]:
        def load() -> None:
            with self._lock:
                self.begun.append(number)
            self.n_begun.release()
            assert self.may_end.wait(30)

        return load

    def wait_for(self, n: int) -> None:
        for _ in range(n):
            assert self.n_begun.acquire(timeout=30)


@pytest.fixture
def loads() -> Loads:
    return Loads()


def test_several_begin_at_once_in_their_order(loads: Loads) -> None:
    prefetcher = Prefetcher()
    prefetcher.want(map(loads.of, range(20)))
    loads.wait_for(N_THREADS)

    assert sorted(loads.begun) == list(range(N_THREADS))
    assert prefetch_threads() == N_THREADS
    loads.may_end.set()
    loads.wait_for(20 - N_THREADS)
    prefetcher.release()
    assert sorted(loads.begun) == list(range(20))
    assert prefetch_threads() == 0


def test_what_is_wanted_no_longer_does_not_begin(loads: Loads) -> None:
    prefetcher = Prefetcher()
    prefetcher.want(map(loads.of, range(20)))
    loads.wait_for(N_THREADS)

    prefetcher.want([loads.of(99)])
    loads.may_end.set()
    loads.wait_for(1)
    prefetcher.release()

    assert set(loads.begun) == {*range(N_THREADS), 99}


def test_a_failure_is_for_whoever_needs_the_shard(loads: Loads) -> None:
    def fail() -> None:
        raise StorageError("no")

    prefetcher = Prefetcher()
    loads.may_end.set()
    prefetcher.want([fail] * 9 + [loads.of(1)])
    loads.wait_for(1)
    prefetcher.release()


def test_a_process_forks_without_these_threads(loads: Loads) -> None:
    prefetcher = Prefetcher()
    loads.may_end.set()
    prefetcher.want(map(loads.of, range(8)))

    child = os.fork()
    if child == 0:
        os._exit(prefetch_threads())
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert prefetch_threads() == 0


def test_the_window_is_what_is_computed_while_a_shard_is_loaded() -> None:
    pace = Pace()
    assert pace.window == N_THREADS
    for _ in range(50):
        pace.loaded(0.1)
        pace.computed(0.01)
    assert N_THREADS + 9 <= pace.window <= N_THREADS + 10
    for _ in range(50):
        pace.loaded(0.001)
    assert pace.window == N_THREADS
    for _ in range(50):
        pace.loaded(1e6)
    assert pace.window == 64
