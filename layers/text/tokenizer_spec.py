# SPDX-License-Identifier: Apache-2.0
"""What a tokenizer is, whatever file it came from: the sources fill it in, the tables are written from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from quickthaw.layers.errors import UnsupportedTokenizerError
from quickthaw.layers.text.added_tokens import AddedToken
from quickthaw.layers.text.normalizer import PLAIN, Normalizer
from quickthaw.layers.text.pretokenizer import Metaspace

Kind = Literal["byte-level", "sentencepiece"]


@dataclass(frozen=True, slots=True)
class TokenizerSpec:
    """Everything that decides a text's tokens."""

    kind: Kind
    split: str  # one of pretokenizer.SPLITS, or of SENTENCEPIECE_SPLITS
    vocabulary: dict[str, int]
    merges: Sequence[tuple[str, str]]
    added: Sequence[AddedToken] = ()
    ignore_merges: bool = False  # a word that is in the vocabulary is that token, whatever the merges say
    normalizer: Normalizer = PLAIN
    metaspace: Metaspace | None = None
    strips_space: bool = False  # decoded text loses one leading space
    before: Sequence[int] = ()  # tokens that `add_special` puts in front
    after: Sequence[int] = ()
    unknown_token_id: int | None = (
        None  # stands for each byte without a token; without it such a byte vanishes
    )
    bos_token_id: int | None = None
    eos_token_id: int | None = None

    def __post_init__(self) -> None:
        for token in self.added:
            if self.vocabulary.get(token.content, token.id) != token.id:
                raise UnsupportedTokenizerError(
                    f"added token {token.content!r} has another id than in the vocabulary",
                    expected=self.vocabulary[token.content],
                    found=token.id,
                )


def byte_alphabet() -> dict[str, int]:
    """Character → byte of the alphabet in which byte-level vocabularies are written.

    Printable Latin-1 stands for itself, the rest follows U+0100.
    Source: bytes_to_unicode in encoder.py of OpenAI's GPT-2.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}
