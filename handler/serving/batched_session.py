# SPDX-License-Identifier: Apache-2.0
"""A session that answers many requests at once: each on a thread of its own, with a place in a batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import monotonic_ns
from weakref import WeakSet, finalize

from quickthaw.handler.decoding import Machine
from quickthaw.handler.errors import BusyError
from quickthaw.handler.generation import Completion, Generation
from quickthaw.handler.prefix import KnownPrefix
from quickthaw.handler.session import Session
from quickthaw.layers.batch import Batch, BatchEngine, BatchLimits, Caller, Seat
from quickthaw.layers.errors import BatchFullError
from quickthaw.layers.spans import Span


class BatchedSession(Session):
    """Between `computing` and its end, `generate` may be called from any thread."""

    @contextmanager
    def computing(self, limits: BatchLimits) -> Iterator[Batch]:
        """Compute what is asked, until the end of the block."""
        assert isinstance(self.engine, BatchEngine)
        self._prefixes: WeakSet[KnownPrefix] = WeakSet()  # of the answers at hand
        with Batch(self.engine, limits) as self._batch:
            yield self._batch

    @property
    def kv_bytes(self) -> int:
        """Room for the keys and values of all answers at hand."""
        return sum([prefix.size_bytes for prefix in self._prefixes])

    def occupancy(self) -> Mapping[str, Sequence[float]]:
        return {"batch_requests": [self._batch.n_seated], "waiting_requests": [self._batch.n_waiting]}

    def forget(self) -> None:
        """An answer's keys and values go with it."""

    def take_spans(self) -> list[Span]:
        """None: a step is of many requests, and no one's own."""
        self.shards.spans.take()
        return []

    def generate(self, request: Generation) -> Completion:
        """As one session's; waits for a place in the batch.

        Raises: as one session's, BusyError when too many wait, or none becomes free before the deadline;
        AbandonedError, BatchClosedError.
        """
        prompts = self._read(request)
        seat = self._take_seat(request)
        prefix = KnownPrefix(self.shards.manifest.model, self._saved)
        self._prefixes.add(prefix)
        machine = Machine(seat, prefix, self._machine.tokenizer, self._machine.end_ids, self.take_spans)
        completion = self._answer(request, prompts, machine)
        completion.on_over = seat.leave
        finalize(completion, seat.leave)  # dropped before its first token, it is never over
        return completion

    def _take_seat(self, request: Generation) -> Seat:
        timeout_s = None
        if request.deadline_ns is not None:
            left_ns = request.deadline_ns - monotonic_ns() - self.config.deadline_margin_ms * 1_000_000
            timeout_s = max(0, left_ns) / 1e9
        try:
            return self._batch.join(Caller(request.priority, request.is_wanted), timeout_s)
        except BatchFullError as exc:
            raise BusyError(str(exc)) from exc
