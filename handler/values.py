# SPDX-License-Identifier: Apache-2.0
"""How the text of an environment variable is read: each raises ValueError for what it does not allow."""

from __future__ import annotations

from collections.abc import Callable


def count(text: str) -> int:
    """A number of at least 1."""
    n = natural(text)
    if n == 0:
        raise ValueError(text)
    return n


def natural(text: str) -> int:
    """A number, in ASCII digits."""
    if not (text.isascii() and text.isdigit()):  # int() would also take "1_0", " 7 " and "٣"
        raise ValueError(text)
    return int(text)


def context(text: str) -> int | None:
    """A number of tokens; None for the model's own."""
    return None if text == "model" else count(text)


def limit(text: str) -> int | None:
    """A number, which may be 0; None for all there are."""
    return None if text == "all" else natural(text)


def choice(**meanings: bool) -> Callable[[str], bool]:
    """One of these words, which stands for its value."""

    def parse(text: str) -> bool:
        if text not in meanings:
            raise ValueError(text)
        return meanings[text]

    return parse


def optional_path(text: str) -> str | None:
    """A path, or None."""
    if "\0" in text:
        raise ValueError(text)
    return text or None


def origins(text: str) -> frozenset[str]:
    """Origins of web pages, or *, with commas between."""
    found = [origin.strip() for origin in text.split(",")] if text else []
    if not all(origin == "*" or _is_origin(origin) for origin in found):
        raise ValueError(text)
    return frozenset(found)


def _is_origin(text: str) -> bool:
    return "://" in text and text.isascii() and text.isprintable()


def namespace(text: str) -> str:
    """What CloudWatch takes for one."""
    is_allowed = text.isascii() and all(character.isalnum() or character in ".-_/#:" for character in text)
    if not (is_allowed and 1 <= len(text) <= 255):  # CloudWatch's limits
        raise ValueError(text)
    return text
