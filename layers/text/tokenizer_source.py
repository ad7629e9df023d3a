# SPDX-License-Identifier: Apache-2.0
"""Turns a checkpoint's tokenizer, whatever its format, into the file of tables that tokenizer.py maps."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from quickthaw.layers.errors import TokenizerError, UnsupportedTokenizerError
from quickthaw.layers.text.added_tokens import AddedToken
from quickthaw.layers.text.merges import Merges
from quickthaw.layers.text.pretokenizer import SPACE
from quickthaw.layers.text.tokenizer_gguf import read_gguf
from quickthaw.layers.text.tokenizer_json import read_directory
from quickthaw.layers.text.tokenizer_spec import TokenizerSpec, byte_alphabet
from quickthaw.layers.text.tokenizer_tables import (
    ABSENT,
    fill_slots,
    pair_home,
    prime_above,
    word_home,
    write_tables_file,
)


@dataclass(frozen=True, slots=True)
class TokenizerInfo:
    """What others need to know of a tokenizer: the manifest, the chat template."""

    n_tokens: int
    bos_token: str | None
    eos_token: str | None
    bos_token_id: int | None
    eos_token_id: int | None
    adds_bos: bool
    adds_eos: bool


def write_tables(source: Path | Mapping[str, Any], out: BinaryIO) -> TokenizerInfo:
    """Writes the tables of a Hugging Face directory's tokenizer, or of the one in a GGUF file's metadata.

    Raises: TokenizerMissingError when there is none, UnsupportedTokenizerError naming what is not
    computed exactly, TokenizerError when a file is malformed.
    """
    spec = read_directory(source) if isinstance(source, Path) else read_gguf(source)
    try:
        tables = _Builder(spec)
        write_tables_file(out, tables.settings(), tables.arrays())
    except UnicodeEncodeError as exc:  # such a token cannot come out of a text, nor be shown in one
        raise TokenizerError("a token that is not Unicode text", found=ascii(exc.object)) from exc
    return tables.info()


class _Builder:
    """The sections of the file, from a spec. Tokens are handled as the bytes that words are made of."""

    def __init__(self, spec: TokenizerSpec) -> None:
        self._spec = spec
        self._is_byte_level = spec.kind == "byte-level"
        self._alphabet = byte_alphabet()
        self._words = {
            word: token_id
            for text, token_id in spec.vocabulary.items()
            if (word := self._word(text)) is not None
        }
        self._byte_ids = self._single_bytes()
        self._pairs, self._merged = self._merge_arrays()
        ranks = {pair: rank for rank, pair in enumerate(self._pairs.tolist())}
        self._n_pair_homes = prime_above(2 * len(ranks))
        homes = ((pair_home(pair, self._n_pair_homes), rank) for pair, rank in ranks.items())
        self._ranks = fill_slots(homes, self._n_pair_homes)
        self._n_word_homes = prime_above(2 * len(self._words))

    def settings(self) -> dict[str, Any]:
        """What is not an array."""
        spec = self._spec
        return {
            "kind": spec.kind,
            "split": self._split(),
            "normalizer": list(spec.normalizer),
            "metaspace": spec.metaspace,
            "strips_space": spec.strips_space,
            "before": list(spec.before),
            "after": list(spec.after),
            "added": [list(self._normalized(token)) for token in spec.added],
            "bos_token_id": spec.bos_token_id,
            "eos_token_id": spec.eos_token_id,
            "longest_token_bytes": max(map(len, self._words)),
            "word_homes": self._n_word_homes,
            "pair_homes": self._n_pair_homes,
        }

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Every section but the settings."""
        tokens = self._tokens()
        offsets = np.zeros(len(tokens) + 1, np.uint32)
        np.cumsum([len(token) for token in tokens], out=offsets[1:])
        words = ((word_home(word, self._n_word_homes), token_id) for word, token_id in self._whole_words())
        return {
            "offsets": offsets,
            "bytes": np.frombuffer(b"".join(tokens), np.uint8),
            "words": fill_slots(words, self._n_word_homes),
            "byte_ids": np.array(self._byte_ids, np.uint32),
            "pairs": self._pairs,
            "merged": self._merged,
            "ranks": self._ranks,
        }

    def info(self) -> TokenizerInfo:
        """What the manifest records."""
        spec = self._spec
        texts = {token_id: text for text, token_id in spec.vocabulary.items()}
        texts |= {token.id: token.content for token in spec.added}
        bos, eos = spec.bos_token_id, spec.eos_token_id
        return TokenizerInfo(
            n_tokens=max(texts) + 1,
            bos_token=None if bos is None else texts.get(bos),
            eos_token=None if eos is None else texts.get(eos),
            bos_token_id=bos,
            eos_token_id=eos,
            adds_bos=bos is not None and bos in spec.before,
            adds_eos=eos is not None and eos in spec.after,
        )

    def _word(self, text: str) -> bytes | None:
        """The bytes that a token of the vocabulary stands for in a word; None when no word can hold it."""
        if not self._is_byte_level:
            return text.encode()
        if all(character in self._alphabet for character in text):
            return bytes(self._alphabet[character] for character in text)
        return None

    def _tokens(self) -> list[bytes]:
        """The tokens by id, as they are decoded."""
        texts = {token_id: text for text, token_id in self._spec.vocabulary.items()}
        texts |= {token.id: token.content for token in self._spec.added}
        tokens = [b""] * (max(texts) + 1)
        for token_id, text in texts.items():
            word = self._word(text)
            tokens[token_id] = text.encode() if word is None else word
        return tokens

    def _single_bytes(self) -> list[int]:
        """The token of each byte."""
        vocabulary = self._spec.vocabulary
        if self._is_byte_level:
            characters = {byte: character for character, byte in self._alphabet.items()}
            unknown = ABSENT if self._spec.unknown_token_id is None else self._spec.unknown_token_id
            ids = [vocabulary.get(characters[byte], unknown) for byte in range(256)]
        else:
            ids = [vocabulary.get(f"<0x{byte:02X}>", ABSENT) for byte in range(256)]
        if ABSENT in ids and not self._is_byte_level:
            raise UnsupportedTokenizerError(
                "unsupported tokenizer",
                expected="a token for every byte",
                found=f"none for {ids.index(ABSENT):#04x}",
            )
        return ids

    def _merge_arrays(self) -> tuple[NDArray[np.uint64], NDArray[np.uint32]]:
        vocabulary = self._spec.vocabulary
        try:
            pairs = [vocabulary[left] << 32 | vocabulary[right] for left, right in self._spec.merges]
            merged = [vocabulary[left + right] for left, right in self._spec.merges]
        except KeyError as exc:
            raise TokenizerError("a merge with a token that is not in the vocabulary", found=exc) from exc
        return np.array(pairs, np.uint64), np.array(merged, np.uint32)

    def _whole_words(self) -> Iterator[tuple[bytes, int]]:
        """The words that are encoded as one token: all of them, or those that the merges make into it."""
        if self._spec.ignore_merges:
            yield from self._words.items()
            return
        merges = Merges(self._pairs.data, self._merged.data, self._ranks.data, self._n_pair_homes)
        for word, token_id in self._words.items():
            if merges.apply(self._symbols(word)) == [token_id]:
                yield word, token_id

    def _symbols(self, word: bytes) -> list[int]:
        if self._is_byte_level:
            return [self._byte_ids[byte] for byte in word]
        symbols: list[int] = []
        for character in word.decode():
            token_id = self._words.get(character.encode())
            symbols += (
                [token_id] if token_id is not None else [self._byte_ids[byte] for byte in character.encode()]
            )
        return symbols

    def _split(self) -> str:
        """A SentencePiece text falls into words if no merge reaches from one into the space after it."""
        spec = self._spec
        if spec.split != "whole" or spec.ignore_merges or SPACE not in spec.vocabulary:
            return spec.split
        reaches = re.compile(f"[^{SPACE}]{SPACE}").search
        return spec.split if any(reaches(left + right) for left, right in spec.merges) else "before_spaces"

    def _normalized(self, token: AddedToken) -> AddedToken:
        content = self._spec.normalizer.apply(token.content) if token.normalized else token.content
        return token._replace(content=content)
