# SPDX-License-Identifier: Apache-2.0
"""What is asked of a session, and what comes back: a generation in, pieces of its choices out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from quickthaw.layers.sampler import Sampling

if TYPE_CHECKING:
    from quickthaw.layers.logprobs import Logprobs


def always() -> bool:
    """Whoever asked waits: where there is no way to know, they do."""
    return True


class Generation(NamedTuple):
    """What to generate: after each of `prompts` (text or token ids), or after `messages`, and how."""

    max_tokens: int
    prompts: Sequence[str | Sequence[int]] = ()
    messages: Sequence[Mapping[str, str]] | None = None
    sampling: Sampling = Sampling()
    n_choices: int = 1  # for each prompt
    stop: Sequence[str] = ()
    is_echoed: bool = False  # whether an answer begins with its prompt
    n_top_logprobs: int | None = None  # None: no log probabilities; 0: only those of the tokens said
    deadline_ns: int | None = None  # monotonic
    priority: int = 0  # where several are computed at once: lower numbers go first
    is_wanted: Callable[[], bool] = always  # whether whoever asked still waits


class Piece(NamedTuple):
    """One token of a choice and the text that it completed; a choice's last piece says why it is the last.

    Text is empty while a character or a possible stop string is incomplete, and log probabilities wait for
    their text. There is no token in an echoed prompt, and none where the deadline ended the answer.
    """

    token_id: int | None
    text: str
    finish_reason: str | None = None  # "stop", "length" or "deadline"
    choice: int = 0  # counted over all prompts
    logprobs: Sequence[Logprobs] = ()


class Completion:
    """One answer while it comes into being: iterate it once; closing it ends the computation.

    `on_over` is called at its end, whichever it is.
    """

    def __init__(
        self, n_prompt_tokens: int, pieces: Iterator[Piece], n_cached_tokens: Callable[[], int]
    ) -> None:
        """`n_cached_tokens` says how many of the prompts' tokens needed no computation so far."""
        self.n_prompt_tokens = n_prompt_tokens
        self.n_tokens = 0
        self.finish_reason: str | None = None
        self.is_over = False
        self.on_over: Callable[[], object] = always
        self._pieces = pieces
        self._n_cached_tokens = n_cached_tokens

    def __iter__(self) -> Iterator[Piece]:
        return self

    def __next__(self) -> Piece:
        try:
            piece = next(self._pieces)
        except BaseException:
            self._end()
            raise
        self.n_tokens += piece.token_id is not None
        self.finish_reason = piece.finish_reason
        return piece

    def close(self) -> None:
        """Compute no further token."""
        close = getattr(self._pieces, "close", None)
        if close is not None:
            close()
        self._end()

    def _end(self) -> None:
        if not self.is_over:
            self.is_over = True
            self.on_over()

    def usage(self) -> dict[str, Any]:
        """Tokens so far, in the names of OpenAI's API: each prompt's once, and those of all choices."""
        return {
            "prompt_tokens": self.n_prompt_tokens,
            "completion_tokens": self.n_tokens,
            "total_tokens": self.n_prompt_tokens + self.n_tokens,
            "prompt_tokens_details": {"cached_tokens": self._n_cached_tokens()},
        }
