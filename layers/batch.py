# SPDX-License-Identifier: Apache-2.0
"""Continuous batching: many sequences, each advanced by a thread of its own, computed in common steps.

    thread of a request   Seat.forward(tokens) ──┐                              ┌──▶ logits
    thread of a request   Seat.forward(tokens) ──┼─▶ one step of the engine ────┼──▶ logits
    thread of a request   Seat.forward(prompt) ──┘   a token of each sequence,  └ ─ ─ after more steps
                                                     a share of each prompt

A step reads each weight once, for whoever has asked by then; requests join and leave between two steps.
Before a step those that were given logits by the last one are waited for, but not for long: a sequence whose
client reads slowly sits a step out. A prompt is computed a share at a time, so that the others' next token
waits for a few dozen tokens of it, not for all. When every place is taken requests wait for one, those of a
lower priority number first; when too many wait, the next is refused.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from quickthaw.layers.errors import AbandonedError, BatchClosedError, BatchFullError
from quickthaw.layers.kv import KeyValueCache, Turn

if TYPE_CHECKING:
    from quickthaw.layers.arrays import Array, Logits

# Tokens of prompts in one step, while others wait for their next token and while none does.
_SHARED_PROMPT_TOKENS = 64
_PROMPT_TOKENS = 256


@runtime_checkable
class BatchEngine(Protocol):
    """Computes one step of several sequences."""

    name: str

    def step(self, turns: Sequence[Turn]) -> Array:
        """The caches take the tokens in. Shapes: the logits after each last token, (n_turns, vocab)."""


class BatchLimits(NamedTuple):
    """How many sequences a step has at most, how many requests may wait for a place among them.

    `max_wait_s` is how long a step waits for a sequence whose last token is still on its way to its client.
    """

    max_batch: int = 16
    max_waiting: int = 256
    max_wait_s: float = 0.005


class Caller(NamedTuple):
    """Who asks for a place; `is_wanted` says whether anybody still waits for the answer."""

    priority: int = 0  # a lower number goes first
    is_wanted: Callable[[], bool] = lambda: True


class Batch:
    """Runs the steps on a thread of its own, from `with` to its end."""

    def __init__(self, engine: BatchEngine, limits: BatchLimits) -> None:
        self._engine = engine
        self._limits = limits
        self._changed = threading.Condition()
        self._seated: list[Seat] = []
        self._waiting: list[Seat] = []
        self._expected: set[Seat] = set()  # given logits by the last step, and not back yet
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="quickthaw-batch", daemon=True)

    def __enter__(self) -> Batch:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        with self._changed:
            self._is_closed = True
            for seat in (*self._waiting, *self._seated):
                seat.answer(BatchClosedError("the batch was closed"))
            self._changed.notify()
        self._thread.join()

    @property
    def n_seated(self) -> int:
        """Sequences that are being computed."""
        return len(self._seated)

    @property
    def n_waiting(self) -> int:
        """Requests that wait for a place."""
        return len(self._waiting)

    def join(self, caller: Caller, timeout_s: float | None = None) -> Seat:
        """A place in the batch, to be left again; waits for one at most so long.

        Raises: BatchFullError, AbandonedError, BatchClosedError.
        """
        seat = Seat(self, self._engine.name, caller)
        with self._changed:
            if self._is_closed:
                raise BatchClosedError("the batch was closed")
            if len(self._seated) < self._limits.max_batch:
                self._seated.append(seat)
                return seat
            if len(self._waiting) >= self._limits.max_waiting:
                raise BatchFullError(
                    "too many requests wait already", found=len(self._waiting), advice="try again later"
                )
            self._waiting.append(seat)
        try:
            seat.wait(timeout_s)
        except Empty:
            self.leave(seat)
            raise BatchFullError("no place became free in time", advice="try again later") from None
        except BaseException:
            self.leave(seat)
            raise
        return seat

    def leave(self, seat: Seat) -> None:
        """Give a place to whoever is next."""
        with self._changed:
            self._expected.discard(seat)
            if seat in self._waiting:
                self._waiting.remove(seat)
            elif seat in self._seated:
                self._seated.remove(seat)
                self._seat_next()
            if not self._expected:
                self._changed.notify()

    def ask(self, seat: Seat) -> None:
        """The seat has something to compute."""
        with self._changed:
            if self._is_closed:
                raise BatchClosedError("the batch was closed")
            is_first = not any(each.is_asking for each in self._seated)
            seat.is_asking = True
            self._expected.discard(seat)
            if is_first or not self._expected:  # else the step that is about to begin waits for others
                self._changed.notify()

    def _seat_next(self) -> None:
        if self._waiting and len(self._seated) < self._limits.max_batch:
            first = min(self._waiting, key=lambda seat: seat.caller.priority)  # of equal ones, who came first
            self._waiting.remove(first)
            self._seated.append(first)
            first.answer(None)

    # --- the thread that computes ---

    def _run(self) -> None:
        while (seats := self._next_step()) is not None:
            if seats:
                self._step(seats)

    def _next_step(self) -> list[Seat] | None:
        """Those who take part in it; None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or any(seat.is_asking for seat in self._seated))
            end_s = monotonic() + self._limits.max_wait_s
            while self._expected and not self._is_closed and (left_s := end_s - monotonic()) > 0:
                self._changed.wait(left_s)
            self._expected.clear()  # who is late is not waited for again
            if self._is_closed:
                return None
            for seat in [seat for seat in self._waiting if not seat.caller.is_wanted()]:
                self._waiting.remove(seat)
                seat.answer(AbandonedError("nobody waits for the answer any more"))
            return [seat for seat in self._seated if seat.is_asking and seat.may_go_on()]

    def _step(self, seats: Sequence[Seat]) -> None:
        shares = share_out([(seat.caller.priority, len(seat.left)) for seat in seats])
        taking_part = [(seat, n) for seat, n in zip(seats, shares, strict=True) if n]
        try:
            logits = self._engine.step([(seat.left[:n], seat.cache) for seat, n in taking_part])
        except Exception as exc:
            for seat, _ in taking_part:
                seat.answer(exc)
            return
        with self._changed:
            for (seat, n), row in zip(taking_part, logits, strict=True):
                seat.left = seat.left[n:]
                if not seat.left:
                    self._expected.add(seat)
                    seat.answer(row)


class Seat:
    """One request's place in a batch: an engine of one sequence, which computes together with the others.

    `before_layer` is called before each step that it takes part in; what it raises ends that `forward`.
    """

    before_layer: Callable[[], object]

    def __init__(self, batch: Batch, name: str, caller: Caller) -> None:
        self.name = name
        self.caller = caller
        self.before_layer = caller.is_wanted
        self.is_asking = False
        self.left: Sequence[int] = ()  # of the tokens that were asked for, those not computed yet
        self.cache: KeyValueCache
        self._batch = batch
        self._answers: SimpleQueue[Logits | Exception | None] = SimpleQueue()

    def forward(self, token_ids: Sequence[int], cache: KeyValueCache) -> Logits:
        """Run the tokens after those in the cache, which takes them in; from one thread at a time.

        Raises: what the engine and `before_layer` raise, AbandonedError, BatchClosedError; the cache is then
        as it was.
        """
        before = cache.n_tokens
        cache.reserve(before + len(token_ids))
        self.left, self.cache = token_ids, cache
        try:
            self._batch.ask(self)
            logits = self.wait(None)
        except BaseException:
            cache.rewind(before)
            raise
        assert logits is not None
        return logits

    def leave(self) -> None:
        """The request is over; once is enough."""
        self._batch.leave(self)

    # --- what the batch does with it ---

    def may_go_on(self) -> bool:
        """Whether the next step should compute for it; if not, it has been told why."""
        try:
            if not self.caller.is_wanted():
                raise AbandonedError("nobody waits for the answer any more")
            self.before_layer()
        except Exception as exc:
            self.answer(exc)
            return False
        return True

    def answer(self, answer: Logits | Exception | None) -> None:
        """Wake its thread; None is a place."""
        self.is_asking = False
        self._answers.put(answer)

    def wait(self, timeout_s: float | None) -> Logits | None:
        """What it is answered. Raises: Empty; the exception that it is answered."""
        answer = self._answers.get(timeout=timeout_s)
        if isinstance(answer, Exception):
            raise answer
        return answer


def share_out(asked: Sequence[tuple[int, int]]) -> list[int]:
    """How many of its tokens each gets computed in the next step, given its priority and how many it has.

    One token is the next of an answer, and is computed at once. Prompts share what is left evenly, the most
    urgent ones alone.
    """
    prompts = [priority for priority, n_tokens in asked if n_tokens > 1]
    if not prompts:
        return [1] * len(asked)
    most = _PROMPT_TOKENS if len(prompts) == len(asked) else _SHARED_PROMPT_TOKENS
    first = min(prompts)
    share = max(1, most // prompts.count(first))
    return [
        n_tokens if n_tokens == 1 else min(share, n_tokens) if priority == first else 0
        for priority, n_tokens in asked
    ]
