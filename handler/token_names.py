# SPDX-License-Identifier: Apache-2.0
"""How a single token is written where an answer speaks of tokens: beside its log probability."""

from __future__ import annotations

from quickthaw.layers.text.tokenizer import Tokenizer


class TokenNames:
    """The tokens of one model."""

    def __init__(self, tokenizer: Tokenizer | None) -> None:
        self._tokenizer = tokenizer

    def text(self, token_id: int) -> str:
        r"""The token as text; `bytes:\xe2\x82`, as OpenAI writes it, when it is half a character."""
        data = self._bytes(token_id)
        if data is None:
            return f"token_id:{token_id}"
        try:
            return data.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join([f"\\x{byte:02x}" for byte in data])

    def byte_values(self, token_id: int) -> list[int] | None:
        """The token's bytes, with which half characters can be put together."""
        data = self._bytes(token_id)
        return None if data is None else list(data)

    def n_characters(self, token_id: int) -> int:
        """The characters that begin in this token: summed over tokens, the length of their text."""
        if self._tokenizer is None or token_id in self._tokenizer.special_ids:
            return 0
        return sum([byte & 0xC0 != 0x80 for byte in self._tokenizer.token_bytes(token_id)])

    def _bytes(self, token_id: int) -> bytes | None:
        return None if self._tokenizer is None else self._tokenizer.token_bytes(token_id)
