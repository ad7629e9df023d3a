# SPDX-License-Identifier: Apache-2.0
"""The mapped vocabulary: a token's bytes by its id, a word's tokens by its bytes."""

from __future__ import annotations

from quickthaw.layers.text.merges import Merges
from quickthaw.layers.text.tokenizer_tables import ABSENT, TokenizerTables, word_home

CACHED_WORDS = 8192  # words that took merging, kept between requests; beyond that the cache starts anew
CACHED_WORD_BYTES = 64


class Vocabulary:
    """Looks words up and merges what is not there; a word seen before is not merged again."""

    def __init__(self, tables: TokenizerTables) -> None:
        settings = tables.settings
        self.n_tokens = len(tables.offsets) - 1
        self._longest_token_bytes: int = settings["longest_token_bytes"]
        self._offsets = tables.offsets
        self._bytes = tables.bytes
        self._words = tables.words
        self._n_homes: int = settings["word_homes"]
        self._byte_ids = tables.byte_ids.tolist()
        # Bytes that no token stands for: they vanish from a text, as in the `tokenizers` package.
        self._unspelled = bytes(byte for byte, token_id in enumerate(self._byte_ids) if token_id == ABSENT)
        self.spells_every_byte = not self._unspelled
        self._merges = Merges(tables.pairs, tables.merged, tables.ranks, settings["pair_homes"])
        self._symbols = self._byte_symbols if settings["kind"] == "byte-level" else self._character_symbols
        self._cache: dict[bytes, list[int]] = {}
        self._characters: dict[str, list[int]] = {}  # the same for characters

    def token(self, token_id: int) -> bytes:
        """What a token reads as; empty when no token has this id."""
        if not 0 <= token_id < self.n_tokens:
            return b""
        return bytes(self._bytes[self._offsets[token_id] : self._offsets[token_id + 1]])

    def spelled_bytes(self) -> dict[int, int]:
        """Token → byte, for the tokens that stand for one byte."""
        return {token_id: byte for byte, token_id in enumerate(self._byte_ids) if token_id != ABSENT}

    def fewest_tokens(self, text: str) -> int:
        """A bound that costs nothing to know: no token is longer than the longest."""
        n_bytes = len(text.encode().translate(None, self._unspelled))
        return -(-n_bytes // self._longest_token_bytes)

    def encode(self, word: bytes) -> list[int]:
        """The tokens of a word."""
        token_id = self._find(word)
        if token_id >= 0:
            return [token_id]
        tokens = self._cache.get(word)
        if tokens is None:
            tokens = self._merges.apply(self._symbols(word))
            if len(word) <= CACHED_WORD_BYTES:
                if len(self._cache) >= CACHED_WORDS:
                    self._cache.clear()
                self._cache[word] = tokens
        return tokens

    def _find(self, word: bytes) -> int:
        """The one token that `word` is encoded as, or -1."""
        if len(word) > self._longest_token_bytes:
            return -1
        slot = word_home(word, self._n_homes)
        while entry := self._words[slot]:
            if self._bytes[self._offsets[entry - 1] : self._offsets[entry]] == word:
                return entry - 1
            slot += 1
        return -1

    def _byte_symbols(self, word: bytes) -> list[int]:
        return [self._byte_ids[byte] for byte in word.translate(None, self._unspelled)]

    def _character_symbols(self, word: bytes) -> list[int]:
        """A token per character; a character that is not in the vocabulary is spelled in bytes."""
        symbols: list[int] = []
        for character in word.decode():
            symbols += self._characters.get(character) or self._character(character)
        return symbols

    def _character(self, character: str) -> list[int]:
        data = character.encode()
        token_id = self._find(data)
        symbols = [token_id] if token_id >= 0 else self._byte_symbols(data)
        if len(self._characters) >= CACHED_WORDS:
            self._characters.clear()
        self._characters[character] = symbols
        return symbols
