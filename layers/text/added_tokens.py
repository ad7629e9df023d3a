# SPDX-License-Identifier: Apache-2.0
"""Finds a model's added tokens in a text: leftmost first, of several at one place the longest."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

# Unicode's White_Space, which Python's str.strip() exceeds by U+001C to U+001F.
WHITE_SPACE = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)


class AddedToken(NamedTuple):
    """A token that is found in the text before anything else is done to it."""

    id: int
    content: str
    special: bool = False  # left out of decoded text, if wished
    normalized: bool = False  # found in the normalized text instead
    lstrip: bool = False  # takes the white space before it along
    rstrip: bool = False  # … and after it


class AddedTokens:
    """Added tokens to look for. A regular expression of them all would compile for milliseconds."""

    def __init__(self, tokens: Sequence[AddedToken]) -> None:
        self._tokens = {token.content: token for token in tokens}
        # What tokens begin with, two characters or all of a shorter one → the lengths to try, longest first.
        self._lengths: dict[str, list[int]] = {}
        for content in sorted(self._tokens, key=len, reverse=True):
            lengths = self._lengths.setdefault(content[:2], [])
            if len(content) not in lengths:
                lengths.append(len(content))
        self._firsts = {head[0] for head in self._lengths}

    def __len__(self) -> int:
        return len(self._tokens)

    def split(self, text: str) -> Iterator[tuple[int, str | AddedToken]]:
        """The added tokens and the stretches between them, each with the place where it begins."""
        end = 0  # of what was yielded; a token that takes white space along can reach into the next one
        space_end = 0  # of the white space that was taken along last: it is not gone through twice
        for start, token in self._matches(text):
            stop = start + len(token.content)
            if token.lstrip:
                start = _space_start(text, start, end)
            if token.rstrip:
                stop = space_end = _space_end(text, max(stop, space_end))
            if end < start:
                yield end, text[end:start]
            yield start, token
            end = stop
        if end < len(text):
            yield end, text[end:]

    def _matches(self, text: str) -> Iterator[tuple[int, AddedToken]]:
        if not any(first in text for first in self._firsts):
            return
        end = 0
        for candidate in re.finditer(f"[{''.join(map(re.escape, self._firsts))}]", text):
            start = candidate.start()
            if start >= end and (token := self._match_at(text, start)):
                yield start, token
                end = start + len(token.content)

    def _match_at(self, text: str, start: int) -> AddedToken | None:
        for head in (text[start : start + 2], text[start]):
            for length in self._lengths.get(head, ()):
                if token := self._tokens.get(text[start : start + length]):
                    return token
        return None


def _space_start(text: str, start: int, end: int) -> int:
    """Where the white space before `start` begins, not before `end`."""
    while start > end and text[start - 1] in WHITE_SPACE:
        start -= 1
    return max(start, end)


def _space_end(text: str, stop: int) -> int:
    """Where the white space from `stop` on ends."""
    while stop < len(text) and text[stop] in WHITE_SPACE:
        stop += 1
    return stop
