# SPDX-License-Identifier: Apache-2.0
"""One choice of an answer: which token comes next, and what of that may be shown.

What could be the beginning of a stop string is held back, and with it the log probabilities of its tokens: a
stop string shows in neither.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import TYPE_CHECKING

from quickthaw.handler.generation import Piece
from quickthaw.handler.prompts import Prompt
from quickthaw.handler.stops import StopStrings
from quickthaw.layers.sampler import Sampler

if TYPE_CHECKING:
    from quickthaw.layers.arrays import Logits
    from quickthaw.layers.logprobs import Logprobs
    from quickthaw.layers.text.token_stream import TokenStream


class Choice:
    """One answer while it comes into being."""

    def __init__(
        self,
        number: int,
        sampler: Sampler,
        text: VisibleText,
        end_ids: Container[int],
        n_top_logprobs: int | None,
    ) -> None:
        self._number = number
        self._sampler = sampler
        self._text = text
        self._end_ids = end_ids
        self._n_top = n_top_logprobs
        self._held: list[Logprobs] = []

    def echo(self, prompt: Prompt, scored: Sequence[Logprobs], *, is_all: bool) -> Piece:
        """The prompt, as the answer's beginning; with `is_all` nothing follows."""
        text = self._text.echo(prompt)
        return Piece(None, text, "length" if is_all else None, self._number, scored)

    def take(self, logits: Logits, *, is_last: bool) -> Piece:
        """The next token. Raises: LogitsError."""
        token_id = self._sampler.sample(logits)
        if token_id in self._end_ids:
            return Piece(token_id, self._text.finish(), "stop", self._number, self._released())
        if self._n_top is not None:
            self._hold(logits, token_id, self._n_top)
        shown = self._text.push(token_id)
        if is_last and not self._text.is_over:
            shown += self._text.finish()
        reason = "stop" if self._text.is_over else "length" if is_last else None
        return Piece(token_id, shown, reason, self._number, self._released())

    def stop_early(self) -> Piece:
        """There is no time for another token."""
        return Piece(None, self._text.finish(), "deadline", self._number, self._released())

    def _hold(self, logits: Logits, token_id: int, n_top: int) -> None:
        from quickthaw.layers.logprobs import logprobs  # no start waits for what few ask for

        self._held.append(logprobs(logits, token_id, n_top))

    def _released(self) -> Sequence[Logprobs]:
        if self._text.is_over or not self._held or self._text.is_holding:
            return ()
        held, self._held = self._held, []
        return held


class VisibleText:
    """Tokens on their way to visible text: whole characters, outside any stop string."""

    def __init__(self, tokens: TokenStream | None, stop: Sequence[str]) -> None:
        self._tokens = tokens
        self._stops = StopStrings(stop)
        self._is_inside_character = False

    @property
    def is_over(self) -> bool:
        """Whether a stop string has come."""
        return self._stops.is_over

    @property
    def is_holding(self) -> bool:
        """Whether some of what was pushed may still be shown later."""
        return self._is_inside_character or self._stops.is_holding

    def echo(self, prompt: Prompt) -> str:
        """The prompt's own text; what follows is decoded as its continuation."""
        decoded = "" if self._tokens is None else "".join(map(self._tokens.push, prompt.ids))
        return decoded if prompt.text is None else prompt.text

    def push(self, token_id: int) -> str:
        if self._tokens is None:
            return ""
        decoded = self._tokens.push(token_id)
        self._is_inside_character = not decoded
        return self._stops.push(decoded)

    def finish(self) -> str:
        self._is_inside_character = False
        return "" if self._tokens is None else self._stops.push(self._tokens.finish()) + self._stops.finish()
