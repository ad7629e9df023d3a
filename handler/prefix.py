# SPDX-License-Identifier: Apache-2.0
"""What of a prompt was computed before: the sequence that was computed last, and a prefix from a state image.

A chat's next turn begins with all that was said so far, and every request to an assistant with the same
system prompt. The keys and values of such a beginning depend on nothing that follows it, so they are not
computed again. One sequence is held, in one cache that the next one goes on in: there is never a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from quickthaw.layers.architecture import ModelConfig
from quickthaw.layers.kv import KeyValueCache

# Room for so many times what it holds may stay: a conversation grows, and growing copies it.
_ROOM = 4


class SavedPrefix(Protocol):
    """Keys and values that outlive the process."""

    def n_shared(self, token_ids: Sequence[int]) -> int:
        """How many of these, from the first on, it can stand for; 0 where loading it is not worth it."""

    def load(self, n_tokens: int, cache: KeyValueCache) -> None:
        """Put its first n_tokens into an empty cache, or none where it turns out to be damaged."""


class KnownPrefix:
    """Finds the longest beginning of a prompt that needs no computation."""

    def __init__(self, model: ModelConfig, saved: SavedPrefix | None = None) -> None:
        self._cache = KeyValueCache(model)
        self._saved = saved

    @property
    def size_bytes(self) -> int:
        """Memory that is held."""
        return self._cache.size_bytes

    def begin(self, token_ids: Sequence[int], *, is_known_used: bool) -> KeyValueCache:
        """The cache, as far as it is known, to compute the others in; its last holder must be done with it.

        The last token is always among those others, because its logits are wanted.
        """
        wanted = token_ids[:-1] if is_known_used else ()
        n_kept = self._cache.n_shared(wanted)
        n_saved = 0 if self._saved is None else self._saved.n_shared(wanted)
        if self._saved is not None and n_saved > n_kept:
            self._cache.rewind(0)
            self._cache.reserve(len(token_ids))  # at once: what is loaded need not move
            self._saved.load(n_saved, self._cache)
        else:
            self._cache.rewind(n_kept)
        return self._cache

    def keep(self, n_tokens: int | None) -> None:
        """Hold on to that many, or to all; room for much more, left by a longer sequence, is given back."""
        most = _ROOM * self._cache.n_tokens
        self._cache.shrink(most if n_tokens is None else min(n_tokens, most))
