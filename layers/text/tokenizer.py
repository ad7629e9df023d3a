# SPDX-License-Identifier: Apache-2.0
"""Text to tokens and back, exactly as the `tokenizers` package does it, over tables that are mapped.

A text goes through five steps: added tokens are found; what lies between them is normalized; normalized added
tokens are found in that; what lies between those is cut into words; each word is looked up, or merged.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from quickthaw.layers.errors import PromptError, PromptTooLongError
from quickthaw.layers.text.added_tokens import AddedToken, AddedTokens
from quickthaw.layers.text.normalizer import Normalizer
from quickthaw.layers.text.pretokenizer import SPACE, Metaspace, word_splitter
from quickthaw.layers.text.token_stream import ByteLevelStream, SentencePieceStream, TokenStream
from quickthaw.layers.text.tokenizer_tables import TokenizerTables
from quickthaw.layers.text.vocabulary import Vocabulary

if TYPE_CHECKING:
    from _typeshed import StrPath


class Tokenizer:
    """A model's tokenizer; safe to share between threads."""

    def __init__(self, tables: TokenizerTables) -> None:
        settings = tables.settings
        self._vocabulary = Vocabulary(tables)
        self._is_sentencepiece: bool = settings["kind"] == "sentencepiece"
        self._normalizer = Normalizer(*settings["normalizer"])
        self._metaspace: Metaspace | None = settings["metaspace"]
        self._strips_space: bool = settings["strips_space"]
        self._before: list[int] = settings["before"]
        self._after: list[int] = settings["after"]
        self._cut = word_splitter(settings["split"])
        added = [AddedToken(*fields) for fields in settings["added"]]
        self._raw_added = AddedTokens([token for token in added if not token.normalized])
        self._normalized_added = AddedTokens([token for token in added if token.normalized])
        self.special_ids = frozenset(token.id for token in added if token.special)
        self.n_tokens = self._vocabulary.n_tokens
        self.bos_token_id: int | None = settings["bos_token_id"]
        self.eos_token_id: int | None = settings["eos_token_id"]

    @classmethod
    def open(cls, path: StrPath) -> Tokenizer:
        """Raises: TokenizerTablesError when the file is damaged or of another version; OSError."""
        with open(path, "rb", buffering=0) as file:
            return cls(TokenizerTables(file, path))

    def encode(self, text: str, *, add_special: bool = True, max_tokens: int | None = None) -> list[int]:
        """The tokens of `text`. Special tokens written in it become themselves.

        Raises: PromptTooLongError as soon as there are sure to be more than `max_tokens`: for a text far too
        long that is before any of it is normalized or merged. PromptError when `text` is not Unicode text.
        """
        before, after = (self._before, self._after) if add_special else ([], [])
        n_special = len(before) + len(after)
        limit = sys.maxsize if max_tokens is None else max_tokens
        stretches = list(self._raw_added.split(_checked(text)))
        _allow(n_special + self._fewest_raw(part for _, part in stretches), limit)
        parts = list(self._parts(stretches))
        _allow(n_special + sum(map(self._fewest_tokens, parts)), limit)
        tokens = list(before)
        for encoded in self._encoded(parts):
            tokens += encoded
            _allow(len(tokens) + len(after), limit)
        return tokens + after

    def decode(self, ids: Iterable[int], *, skip_special: bool = True) -> str:
        """The text of `ids`; ids that are no token are left out."""
        stream = self.stream(skip_special=skip_special)
        return "".join([*map(stream.push, ids), stream.finish()])

    def stream(self, *, skip_special: bool = True) -> TokenStream:
        """Decodes token by token; all that it returns together is what `decode` returns."""
        skipped = self.special_ids if skip_special else frozenset[int]()
        if self._is_sentencepiece:
            return SentencePieceStream(self._vocabulary, skipped, self._spelled, self._strips_space)
        return ByteLevelStream(self._vocabulary, skipped)

    def token_bytes(self, token_id: int) -> bytes:
        """What one token stands for by itself, a special one too; empty when no token has this id."""
        token = self._vocabulary.token(token_id)
        if not self._is_sentencepiece:
            return token
        byte = self._spelled.get(token_id)
        return token.replace(SPACE.encode(), b" ") if byte is None else bytes([byte])

    @cached_property
    def _spelled(self) -> dict[int, int]:
        return self._vocabulary.spelled_bytes()

    def _parts(self, stretches: Iterable[tuple[int, AddedToken | str]]) -> Iterator[AddedToken | str]:
        """Added tokens, and the normalized text between them."""
        for start, part in stretches:
            if isinstance(part, AddedToken):
                yield part
                continue
            for offset, stretch in self._normalized_added.split(self._normalizer.apply(part)):
                is_first = start + offset == 0
                yield stretch if isinstance(stretch, AddedToken) else self._with_prefix(stretch, is_first)

    def _with_prefix(self, text: str, is_first: bool) -> str:
        """What a Metaspace pre-tokenizer makes of a stretch of text."""
        if self._metaspace is None:
            return text
        text = text.replace(" ", SPACE)
        wants_space = self._metaspace == "always" or (self._metaspace == "first" and is_first)
        return SPACE + text if wants_space and not text.startswith(SPACE) else text

    def _fewest_tokens(self, part: AddedToken | str) -> int:
        return 1 if isinstance(part, AddedToken) else self._vocabulary.fewest_tokens(part)

    def _fewest_raw(self, parts: Iterable[AddedToken | str]) -> int:
        """A bound for text that is not normalized yet; 0 where it might lose any number of its bytes."""
        if self._normalized_added or (self._normalizer.nfc and not self._vocabulary.spells_every_byte):
            return 0
        return sum(map(self._fewest_tokens, parts)) // self._normalizer.shrinkage

    def _encoded(self, parts: Iterable[AddedToken | str]) -> Iterator[list[int]]:
        for part in parts:
            if isinstance(part, AddedToken):
                yield [part.id]
            else:
                yield from map(self._vocabulary.encode, self._cut(part))


def _allow(n_tokens: int, limit: int) -> None:
    if n_tokens > limit:
        raise PromptTooLongError(limit, n_tokens)


def _checked(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as exc:
        raise PromptError(
            "the prompt is not Unicode text",
            found=f"a lone surrogate U+{ord(text[exc.start]):04X} at character {exc.start}",
            advice="send text that can be written as UTF-8",
        ) from exc
    return text
