# SPDX-License-Identifier: Apache-2.0
"""A few threads that share out the pieces of one job.

Every lane takes the next piece when it is done with its last, so a lane that a busy neighbour slows down
takes fewer. Lanes sleep on a lock between jobs: they do not spin, because two BLAS threads spinning on a busy
2-core machine are many times slower than one (docs/adr/0003).
"""

import os
from collections.abc import Callable, Iterable, Iterator
from threading import Lock, Thread
from weakref import ref

Piece = tuple[int, int]
Work = Callable[[int, Piece], None]


def pieces(n_items: int, per_piece: int) -> list[Piece]:
    """The ranges (begin, end) that cut n_items into pieces of per_piece, the last one shorter."""
    return [(begin, min(begin + per_piece, n_items)) for begin in range(0, n_items, per_piece)]


def even_pieces(n_items: int, at_most: int, n_lanes: int) -> list[Piece]:
    """As many pieces for each lane, all of one size: no lane waits for another's last piece."""
    n_pieces = -(-n_items // (at_most * n_lanes)) * n_lanes
    return pieces(n_items, -(-n_items // n_pieces))


class Crew:
    """Runs `work(lane, piece)` for every piece of a job on up to `n_lanes` threads; the caller is lane 0.

    The other lanes are started by the first job that needs them, and ended before the process forks, as
    OpenBLAS does it: an initialised function has no threads and can be snapshotted. One job at a time: `run`
    is called from one thread.
    """

    def __init__(self, n_lanes: int) -> None:
        self.n_lanes = n_lanes
        self._lanes: list[_Lane] = []
        self._is_running = False
        this = ref(self)  # what is registered stays; a crew need not
        os.register_at_fork(before=lambda: _release_idle(this()))

    def run(self, work: Work, job: list[Piece]) -> None:
        """Returns when every piece is done; raises a piece's first error once all lanes have stopped."""
        queue = iter(job)  # next() on a list iterator is atomic under the GIL: each piece is taken once
        helpers = self._helpers(min(self.n_lanes, len(job)) - 1)
        self._is_running = True
        for lane in helpers:
            lane.begin(work, queue)
        errors = [_drain(work, queue, 0), *(lane.finish() for lane in helpers)]
        self._is_running = False
        for error in errors:
            if error is not None:
                raise error

    def release(self) -> None:
        """Ends the threads until the next job: a process that is about to be cloned must have none."""
        for lane in self._lanes:
            lane.end()
        self._lanes = []

    def __del__(self) -> None:
        for lane in self._lanes:
            lane.dismiss()  # or its thread would wait for ever

    def _helpers(self, n: int) -> list["_Lane"]:
        while len(self._lanes) < n:
            self._lanes.append(_Lane(len(self._lanes) + 1))
        return self._lanes[: max(n, 0)]


def _release_idle(crew: Crew | None) -> None:
    """In the middle of a job another thread forks, to run something else in the child: the job goes on."""
    if crew is not None and not crew._is_running:
        crew.release()


def _drain(work: Work, queue: Iterable[Piece], lane: int) -> BaseException | None:
    """Works until the queue is empty. An error is returned, not raised: the other lanes must stop first."""
    try:
        for piece in queue:
            work(lane, piece)
    except BaseException as error:
        return error
    return None


class _Lane:
    """One helper thread: `_go` is held while there is no job, `_done` while there is one."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._job: tuple[Work, Iterator[Piece]] | None = None
        self._error: BaseException | None = None
        self._go, self._done = Lock(), Lock()
        self._go.acquire()
        self._done.acquire()
        self._thread = Thread(target=self._live, name=f"quickthaw-lane-{number}", daemon=True)
        self._thread.start()

    def begin(self, work: Work, queue: Iterator[Piece]) -> None:
        self._job = (work, queue)
        self._go.release()

    def finish(self) -> BaseException | None:
        self._done.acquire()
        return self._error

    def dismiss(self) -> None:
        self._job = None
        self._go.release()

    def end(self) -> None:
        self.dismiss()
        self._thread.join()

    def _live(self) -> None:
        while True:
            self._go.acquire()
            if self._job is None:
                return
            self._error = _drain(*self._job, self._number)
            self._job = None  # the job's arrays must not outlive it
            self._done.release()
