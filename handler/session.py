# SPDX-License-Identifier: Apache-2.0
"""The initialised function: one model, its tokenizer, an engine, and how they turn a prompt into an answer.

`open` runs at init and reads the manifest, the embedding shard and the tokenizer's tables, nothing else.
`generate` checks its prompt at once and computes a token each time it is asked for one: tokenise → run →
sample → detokenise → stop.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from quickthaw.handler.config import HandlerConfig
from quickthaw.handler.deadline import Deadline
from quickthaw.handler.errors import ContextLengthError, FieldError
from quickthaw.handler.stops import StopStrings
from quickthaw.layers.architecture import ModelConfig
from quickthaw.layers.cpu import usable_cpus
from quickthaw.layers.errors import PromptTooLongError
from quickthaw.layers.interpreter import Interpreter
from quickthaw.layers.kv import KeyValueCache
from quickthaw.layers.sampler import Logits, Sampler, Sampling
from quickthaw.layers.shard import ShardSet
from quickthaw.layers.spans import Span
from quickthaw.layers.text.chat import ChatTemplate
from quickthaw.layers.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from quickthaw.layers.text.token_stream import TokenStream


class Generation(NamedTuple):
    """What to generate: after either `prompt` (text or token ids) or `messages`, and how."""

    max_tokens: int
    prompt: str | Sequence[int] | None = None
    messages: Sequence[Mapping[str, str]] | None = None
    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int | None = None
    stop: Sequence[str] = ()
    deadline_ns: int | None = None  # monotonic


class Piece(NamedTuple):
    """One token and the text that it completed; the last piece says why it is the last.

    Text is empty while a character or a possible stop string is incomplete. The last piece has no token where
    the deadline ended the answer.
    """

    token_id: int | None
    text: str
    finish_reason: str | None = None  # "stop", "length" or "deadline"


class Engine(Protocol):
    """Computes the logits of a sequence's next token."""

    name: str

    def forward(self, token_ids: Sequence[int], cache: KeyValueCache) -> Logits: ...


class Completion:
    """One answer while it comes into being: iterate it once; closing it ends the computation."""

    def __init__(self, n_prompt_tokens: int, pieces: Iterator[Piece]) -> None:
        self.n_prompt_tokens = n_prompt_tokens
        self.n_tokens = 0
        self.finish_reason: str | None = None
        self._pieces = pieces

    def __iter__(self) -> Iterator[Piece]:
        return self

    def __next__(self) -> Piece:
        piece = next(self._pieces)
        self.n_tokens += piece.token_id is not None
        self.finish_reason = piece.finish_reason
        return piece

    def close(self) -> None:
        """Compute no further token."""
        close = getattr(self._pieces, "close", None)
        if close is not None:
            close()

    def usage(self) -> dict[str, int]:
        """Tokens so far, in the names of OpenAI's API."""
        return {
            "prompt_tokens": self.n_prompt_tokens,
            "completion_tokens": self.n_tokens,
            "total_tokens": self.n_prompt_tokens + self.n_tokens,
        }


class Session:
    """Answers one request at a time."""

    def __init__(
        self,
        shards: ShardSet,
        engine: Engine,
        tokenizer: Tokenizer | None,
        config: HandlerConfig,
    ) -> None:
        self.model_name = shards.manifest.name
        self.engine_name = engine.name
        self.config = config
        self.kv_bytes = 0  # keys and values of the last answer
        self._shards = shards
        self._engine = engine
        self._tokenizer = tokenizer
        self._model: ModelConfig = shards.manifest.model
        template = shards.manifest.chat_template
        self._template = None if template is None else ChatTemplate.from_manifest(template)

    @classmethod
    def open(cls, config: HandlerConfig) -> Session:
        """Raises: ManifestError, ShardError, TokenizerTablesError."""
        shards = ShardSet.open(config.layers.shards, config.layers)
        with shards.spans.timed("tokenizer"):
            path = shards.tokenizer_path()
            tokenizer = None if path is None else Tokenizer.open(path)
        engine = Interpreter(shards, config.layers.n_threads or usable_cpus())
        return cls(shards, engine, tokenizer, config)

    @property
    def context_tokens(self) -> int:
        """How many tokens prompt and answer may have together."""
        return min(self.config.context_tokens or self._model.max_positions, self._model.max_positions)

    @property
    def bytes_read(self) -> int:
        """Bytes of the shards that were needed so far."""
        return self._shards.bytes_mapped

    @property
    def resident_bytes(self) -> int | None:
        """How much of those is in memory now; takes milliseconds. None where the kernel does not say."""
        return self._shards.resident_bytes()

    def take_spans(self) -> list[Span]:
        """What the shards and the engine timed since this was last asked."""
        return self._shards.spans.take()

    def generate(self, request: Generation) -> Completion:
        """Check the prompt now, compute the answer as it is iterated.

        `max_tokens` beyond the room that the prompt leaves is cut to it.
        Raises: RequestError, ChatTemplateError; while iterating, ShardError.
        """
        with self._shards.spans.timed("tokenise"):
            prompt_ids = self._prompt_ids(request)
        if request.stop and self._tokenizer is None:
            raise FieldError("stop", "none: this model has no tokenizer", f"{len(request.stop)}")
        max_tokens = min(request.max_tokens, self.context_tokens - len(prompt_ids))
        return Completion(len(prompt_ids), self._pieces(prompt_ids, max_tokens, request))

    # --- prompt ---

    def _prompt_ids(self, request: Generation) -> Sequence[int]:
        if request.messages is not None:
            return self._encode("messages", self._render(request.messages), add_special=False)
        if isinstance(request.prompt, str):
            return self._encode("prompt", request.prompt, add_special=True)
        return self._checked_ids(request.prompt or ())

    def _render(self, messages: Sequence[Mapping[str, str]]) -> str:
        if self._template is None:
            raise FieldError("messages", "a prompt: this model has no chat template", "messages")
        return self._template.render(messages)

    def _encode(self, field: str, text: str, *, add_special: bool) -> list[int]:
        if self._tokenizer is None:
            raise FieldError(field, "a list of token ids: this model has no tokenizer", "text")
        room = self.context_tokens - 1  # for at least one token of answer
        try:
            ids = self._tokenizer.encode(text, add_special=add_special, max_tokens=room)
        except PromptTooLongError as exc:
            found = f"{exc.fewest_tokens} or more"
            raise ContextLengthError(field, f"at most {room} tokens", found) from exc
        if not ids:
            raise FieldError(field, "at least one token", "none")
        return ids

    def _checked_ids(self, ids: Sequence[int]) -> Sequence[int]:
        if not ids:
            raise FieldError("prompt", "at least one token", "none")
        if len(ids) >= self.context_tokens:
            raise ContextLengthError("prompt", f"at most {self.context_tokens - 1} tokens", str(len(ids)))
        for index, token_id in enumerate(ids):
            if not 0 <= token_id < self._model.vocab_size:
                expected = f"a token id from 0 to {self._model.vocab_size - 1}"
                raise FieldError(f"prompt[{index}]", expected, str(token_id))
        return ids

    # --- answer ---

    def _pieces(self, prompt_ids: Sequence[int], max_tokens: int, request: Generation) -> Iterator[Piece]:
        sampling = Sampling(request.temperature, request.top_k, request.top_p, seed=request.seed)
        sampler = Sampler(sampling)
        deadline = Deadline(request.deadline_ns, self.config.deadline_margin_ms * 1_000_000)
        text = _Text(None if self._tokenizer is None else self._tokenizer.stream(), request.stop)
        cache = KeyValueCache(self._model)
        new_ids = prompt_ids
        for n_left in range(max_tokens - 1, -1, -1):
            if not deadline.begin_token():
                break
            token_id = sampler.sample(self._engine.forward(new_ids, cache))
            deadline.end_token()
            self.kv_bytes = cache.size_bytes
            shown, reason = self._take(token_id, text, n_left)
            yield Piece(token_id, shown, reason)
            if reason is not None:
                return
            # Only what came before the first token is of interest, and an answer may be long.
            self._shards.spans.take()
            new_ids = (token_id,)
        yield Piece(None, text.finish(), "deadline")

    def _take(self, token_id: int, text: _Text, n_left: int) -> tuple[str, str | None]:
        """The text to show for a token, and whether it is the last."""
        if token_id in self._shards.manifest.eos_token_ids:
            return text.finish(), "stop"
        shown = text.push(token_id)
        if n_left == 0 and not text.is_over:
            shown += text.finish()
            return shown, "stop" if text.is_over else "length"
        return shown, "stop" if text.is_over else None


class _Text:
    """Tokens on their way to visible text: whole characters, outside any stop string."""

    def __init__(self, tokens: TokenStream | None, stop: Sequence[str]) -> None:
        self._tokens = tokens
        self._stops = StopStrings(stop)

    @property
    def is_over(self) -> bool:
        """Whether a stop string has come."""
        return self._stops.is_over

    def push(self, token_id: int) -> str:
        return "" if self._tokens is None else self._stops.push(self._tokens.push(token_id))

    def finish(self) -> str:
        return "" if self._tokens is None else self._stops.push(self._tokens.finish()) + self._stops.finish()
