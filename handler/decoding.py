# SPDX-License-Identifier: Apache-2.0
"""The loop: prompt → logits → token → logits → …, choice after choice, prompt after prompt.

A prompt is computed once, from where it leaves what was computed before (`prefix.py`); every choice but the
last goes on from a copy of its keys and values: 4 choices of 4 tokens after a prompt of 400 take a third of
what 4 requests take.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol

from quickthaw.handler.choice import Choice, VisibleText
from quickthaw.handler.deadline import Deadline
from quickthaw.handler.errors import OutOfTimeError
from quickthaw.handler.generation import Generation, Piece
from quickthaw.handler.prefix import KnownPrefix
from quickthaw.handler.prompts import Prompt
from quickthaw.layers.kv import KeyValueCache
from quickthaw.layers.sampler import Sampler
from quickthaw.layers.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from quickthaw.layers.arrays import Logits
    from quickthaw.layers.logprobs import Logprobs


class Engine(Protocol):
    """Computes the logits of a sequence's next token; what `before_layer` raises ends that."""

    name: str
    before_layer: Callable[[], object]

    def forward(self, token_ids: Sequence[int], cache: KeyValueCache) -> Logits: ...


class Machine:
    """What answers are made with; `on_token` is called after each that is not a choice's last."""

    def __init__(
        self,
        engine: Engine,
        prefix: KnownPrefix,
        tokenizer: Tokenizer | None,
        end_ids: Container[int],
        on_token: Callable[[], object],
    ) -> None:
        self.engine = engine
        self.prefix = prefix
        self.tokenizer = tokenizer
        self.end_ids = end_ids
        self.on_token = on_token


class Decoding:
    """One request on its way through the engine; logits of None mean that time ran out."""

    def __init__(
        self, machine: Machine, request: Generation, deadline: Deadline, context_tokens: int
    ) -> None:
        self._machine = machine
        self._request = request
        self._deadline = deadline
        machine.engine.before_layer = deadline.begin_layer
        self._context_tokens = context_tokens
        self.n_cached_tokens = 0  # of the prompts so far, those that needed no computation

    def pieces(self, prompts: Sequence[Prompt]) -> Iterator[Piece]:
        """Raises: ShardError, LogitsError."""
        n_choices = self._request.n_choices
        for number, prompt in enumerate(prompts):
            cache = self._machine.prefix.begin(prompt.ids, is_known_used=not self._is_scored)
            self.n_cached_tokens += cache.n_tokens
            logits, scored = self._compute(prompt, cache)
            for place in range(n_choices):
                choice = self._choice(number * n_choices + place, place, prompt)
                if self._request.is_echoed:
                    yield choice.echo(prompt, scored, is_all=not self._request.max_tokens)
                is_last = place == n_choices - 1
                max_tokens = min(self._request.max_tokens, self._context_tokens - len(prompt.ids))
                yield from self._continue(choice, logits, cache if is_last else cache.copy(), max_tokens)

    def _choice(self, number: int, place: int, prompt: Prompt) -> Choice:
        request, machine = self._request, self._machine
        sampler = Sampler(request.sampling, prompt.ids, choice=place)
        text = VisibleText(None if machine.tokenizer is None else machine.tokenizer.stream(), request.stop)
        return Choice(number, sampler, text, machine.end_ids, request.n_top_logprobs)

    @property
    def _is_scored(self) -> bool:
        """Whether the echo wants to know how likely each token of the prompt was: then all are computed."""
        return self._request.is_echoed and self._request.n_top_logprobs is not None

    def _compute(self, prompt: Prompt, cache: KeyValueCache) -> tuple[Logits | None, list[Logprobs]]:
        """The logits after the prompt, and of a scored one how likely each of its tokens was."""
        if self._is_scored:
            return self._score(prompt.ids, cache, self._request.n_top_logprobs or 0)
        return self._forward(prompt.ids[cache.n_tokens :], cache), []

    def _score(
        self, ids: Sequence[int], cache: KeyValueCache, n_top: int
    ) -> tuple[Logits | None, list[Logprobs]]:
        """Each token is computed by itself, since an engine returns logits for one position."""
        from quickthaw.layers.logprobs import Logprobs, logprobs  # no start waits for what few ask for

        scored = [Logprobs(ids[0], None)]
        for token_id, following in pairwise(ids):
            logits = self._forward((token_id,), cache)
            if logits is None:
                return None, scored
            scored.append(logprobs(logits, following, n_top))
        return self._forward(ids[-1:], cache), scored

    def _continue(
        self, choice: Choice, logits: Logits | None, cache: KeyValueCache, max_tokens: int
    ) -> Iterator[Piece]:
        for n_left in range(max_tokens - 1, -1, -1):
            if logits is None:
                yield choice.stop_early()
                return
            piece = choice.take(logits, is_last=n_left == 0)
            yield piece
            if piece.finish_reason is not None:
                return
            self._machine.on_token()
            assert piece.token_id is not None
            logits = self._forward((piece.token_id,), cache)

    def _forward(self, token_ids: Sequence[int], cache: KeyValueCache) -> Logits | None:
        if not self._deadline.begin_token():
            return None
        try:
            logits = self._machine.engine.forward(token_ids, cache)
        except OutOfTimeError:
            return None
        self._deadline.end_token()
        return logits
