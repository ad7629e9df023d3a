# SPDX-License-Identifier: Apache-2.0
"""The initialised function: one model, its tokenizer, an engine, and how they turn a prompt into an answer.

`open` runs at init and reads the manifest, the embedding shard and the tokenizer's tables, nothing else;
where a state image is named, its head as well.
`generate` checks its prompts at once and computes a token each time it is asked for one: tokenise → run →
sample → detokenise → stop.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Self
from weakref import ReferenceType, ref

from quickthaw.handler.config import EngineChoice, HandlerConfig
from quickthaw.handler.deadline import Deadline
from quickthaw.handler.decoding import Decoding, Engine, Machine
from quickthaw.handler.errors import BusyError, FieldError
from quickthaw.handler.generation import Completion, Generation
from quickthaw.handler.prefix import KnownPrefix, SavedPrefix
from quickthaw.handler.prompts import Prompt, PromptReader
from quickthaw.handler.token_names import TokenNames
from quickthaw.layers.cpu import usable_cpus
from quickthaw.layers.interpreter import Interpreter
from quickthaw.layers.shard_set import ShardSet
from quickthaw.layers.spans import Span
from quickthaw.layers.text.chat import ChatTemplate
from quickthaw.layers.text.tokenizer import Tokenizer
from quickthaw.layers.text.tokenizer_tables import TokenizerTables


class Session:
    """Answers one request at a time."""

    def __init__(
        self,
        shards: ShardSet,
        engine: Engine,
        tokenizer: Tokenizer | None,
        config: HandlerConfig,
        saved: SavedPrefix | None = None,
    ) -> None:
        manifest = shards.manifest
        self.model_name = manifest.name
        self.vocab_size = manifest.model.vocab_size
        self.config = config
        self.context_tokens = min(config.context_tokens or sys.maxsize, manifest.model.max_positions)
        self.token_names = TokenNames(tokenizer)
        template = (
            None if manifest.chat_template is None else ChatTemplate.from_manifest(manifest.chat_template)
        )
        self.prompts = PromptReader(tokenizer, template, self.vocab_size, self.context_tokens)
        self._has_tokenizer = tokenizer is not None
        self.shards = shards
        self.engine = engine
        self._saved = saved
        self._prefix = KnownPrefix(manifest.model, saved)
        # Only what came before the first token is of interest, and an answer may be long.
        self._machine = Machine(engine, self._prefix, tokenizer, manifest.eos_token_ids, shards.spans.take)
        self._running: ReferenceType[Completion] | None = None
        self._may_upgrade = config.engine is EngineChoice.AUTO

    @classmethod
    def open(cls, config: HandlerConfig) -> Self:
        """Raises: ManifestError, ShardError, TokenizerTablesError."""
        shards = ShardSet.open(config.layers.shards, config.layers)
        with shards.spans.timed("tokenizer"):
            tokenizer = _tokenizer(shards)
        return cls(shards, _engine(shards, config), tokenizer, config, _saved_prefix(shards, config))

    @property
    def engine_name(self) -> str:
        """What computes; it changes between two requests at most."""
        return self.engine.name

    @property
    def bytes_read(self) -> int:
        """Bytes of the shards that were needed so far, again where one had to go in between."""
        return self.shards.bytes_loaded

    @property
    def mapped_bytes(self) -> int:
        """Bytes of the shards that are mapped now."""
        return self.shards.bytes_mapped

    @property
    def n_evicted(self) -> int:
        """How many shards had to go, so far."""
        return self.shards.n_evicted

    @property
    def resident_bytes(self) -> int | None:
        """How much of those is in memory now; takes milliseconds. None where the kernel does not say."""
        return self.shards.resident_bytes()

    @property
    def kv_bytes(self) -> int:
        """Room for the keys and values of the answer at hand, or the last one."""
        return self._prefix.size_bytes

    def occupancy(self) -> Mapping[str, Sequence[float]]:
        """Metrics of who is being answered; it answers one at a time, and there are none."""
        return {}

    def forget(self) -> None:
        """The answer has left: keep what the next one may begin with, and give back the rest."""
        if not self._is_busy():
            self._prefix.keep(self.config.kept_tokens)

    def upgrade(self) -> None:
        """Let the compiled engine take over if that is wanted and measured to be faster; tried once.

        It takes seconds, so it is for when nobody waits. Raises: ShardError.
        """
        if self._is_busy() or not self._may_upgrade:
            return
        self._may_upgrade = False
        from quickthaw.handler.takeover import faster_engine

        faster = faster_engine(self.engine, self.shards, self.config)
        if faster is not None:
            self.engine = self._machine.engine = faster

    def take_spans(self) -> list[Span]:
        """What the shards and the engine timed since this was last asked."""
        return self.shards.spans.take()

    def generate(self, request: Generation) -> Completion:
        """Check the prompts now, compute the answer as it is iterated.

        `max_tokens` beyond the room that a prompt leaves is cut to it.
        Raises: RequestError, ChatTemplateError; now or while iterating, ShardError. BusyError while another
        answer is neither finished nor closed.
        """
        if self._is_busy():
            raise BusyError("another request is being answered: this function answers one at a time")
        completion = self._answer(request, self._read(request), self._machine)
        self._running = ref(completion)  # weak: an answer that everybody has dropped holds nobody up
        return completion

    def _read(self, request: Generation) -> list[Prompt]:
        """The prompts, and the rest of what is asked checked."""
        self.shards.check_unchanged()  # the tokenizer's tables are read before any layer is asked for
        with self.shards.spans.timed("tokenise"):
            prompts = self.prompts.read(request)
        self._check(request)
        return prompts

    def _answer(self, request: Generation, prompts: Sequence[Prompt], machine: Machine) -> Completion:
        deadline = Deadline(request.deadline_ns, self.config.deadline_margin_ms * 1_000_000)
        decoding = Decoding(machine, request, deadline, self.context_tokens)
        n_prompt_tokens = sum([len(prompt.ids) for prompt in prompts])
        return Completion(n_prompt_tokens, decoding.pieces(prompts), lambda: decoding.n_cached_tokens)

    def _is_busy(self) -> bool:
        running = None if self._running is None else self._running()
        return running is not None and not running.is_over

    def _check(self, request: Generation) -> None:
        if request.stop and not self._has_tokenizer:
            raise FieldError("stop", "none: this model has no tokenizer", f"{len(request.stop)}")
        for token_id, _ in request.sampling.logit_bias:
            self.prompts.check_id(f"logit_bias.{token_id}", token_id)


def _tokenizer(shards: ShardSet) -> Tokenizer | None:
    stored = shards.open_tokenizer()
    if stored is None:
        return None
    with stored.file as file:
        return Tokenizer(TokenizerTables(file, stored.path))


def _engine(shards: ShardSet, config: HandlerConfig) -> Engine:
    if config.engine is EngineChoice.COMPILED:
        from quickthaw.handler.takeover import compiled_engine  # only who wants it waits for it

        return compiled_engine(shards, config)
    return Interpreter(shards, config.layers.n_threads or usable_cpus())


def _saved_prefix(shards: ShardSet, config: HandlerConfig) -> SavedPrefix | None:
    if config.state_image is None:
        return None
    from quickthaw.handler.state_image import open_image  # only who has one waits for it

    return open_image(config.state_image, config.layers.shards, shards)
