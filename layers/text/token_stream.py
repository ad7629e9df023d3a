# SPDX-License-Identifier: Apache-2.0
"""Turns tokens into text as they come, never showing half a character; what was shown never changes."""

from __future__ import annotations

import codecs
from collections.abc import Container, Mapping
from typing import Protocol

from quickthaw.layers.text.pretokenizer import SPACE
from quickthaw.layers.text.vocabulary import Vocabulary


class TokenStream(Protocol):
    """Text so far = all that `push` returned; at the end comes what `finish` returns."""

    def push(self, token_id: int) -> str: ...

    def finish(self) -> str: ...


class ByteLevelStream:
    """Tokens are bytes: a character appears with the last of its bytes."""

    def __init__(self, vocabulary: Vocabulary, skipped: Container[int]) -> None:
        self._vocabulary = vocabulary
        self._skipped = skipped
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token_id: int) -> str:
        """The text that this token completes; empty while a character is incomplete."""
        return "" if token_id in self._skipped else self._decoder.decode(self._vocabulary.token(token_id))

    def finish(self) -> str:
        """The rest: an incomplete character becomes U+FFFD."""
        return self._decoder.decode(b"", final=True)


class SentencePieceStream:
    """Tokens are text or single bytes.

    Bytes wait for the end of their run: if that is not UTF-8, each becomes U+FFFD, as in `tokenizers`.
    """

    def __init__(
        self, vocabulary: Vocabulary, skipped: Container[int], spelled: Mapping[int, int], strips_space: bool
    ) -> None:
        self._vocabulary = vocabulary
        self._skipped = skipped
        self._spelled = spelled
        self._strips_space = strips_space  # until the first text has come
        self._run = bytearray()

    def push(self, token_id: int) -> str:
        """The text that this token completes; empty while a run of bytes goes on."""
        if token_id in self._skipped:
            return ""
        byte = self._spelled.get(token_id)
        if byte is not None:
            self._run.append(byte)
            return ""
        token = self._vocabulary.token(token_id)
        return self._text(self._end_run() + token.decode().replace(SPACE, " ")) if token else ""

    def finish(self) -> str:
        """The rest: a run of bytes that nothing followed."""
        return self._text(self._end_run())

    def _end_run(self) -> str:
        run = bytes(self._run)
        self._run.clear()
        try:
            return run.decode()
        except UnicodeDecodeError:
            return "\ufffd" * len(run)

    def _text(self, text: str) -> str:
        if self._strips_space and text:
            self._strips_space = False
            return text.removeprefix(" ")
        return text
