# SPDX-License-Identifier: Apache-2.0
"""What kind of character each code point is to the `tokenizers` package: letter, number, space and so on.

Python's idea of a letter or a number differs from it in thousands of code points, so the classes are a table,
generated from `tokenizers` by tests/golden/make_unicode_classes.py. A class is one ASCII character, so that a
text's classes are a byte string on which a plain `re` pattern finds the words:

    s t r e v m l d  S T R E V M L D    themselves: they end English contractions
    a  other lowercase letter           A  other uppercase or titlecase letter
    f  U+017F: ignoring case, an s      o  letter without case
    0  number                           #  number to Digits, but not yet to \\p{N}
    space \\r \\n ' /                     themselves
    \\t other white space                ^  combining mark            .  anything else

    unicode_classes.bin
    ┌──────────────────────────────┬──────────────────────────────────────────────────┐
    │ block index: u8[4352]        │ distinct blocks: u8[n][256]                      │
    │ code point >> 8 → block      │ code point & 255 → class | 0x80 if new to NFC    │
    └──────────────────────────────┴──────────────────────────────────────────────────┘
"""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

N_BLOCKS = 0x110000 // 256
NEW_TO_NFC = 0x80


@cache
def _tables() -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Shapes: block index (4352,), blocks (n, 256). Read at the first text that needs them."""
    # importlib.resources would cost more than the tokenizer.
    path = os.path.join(os.path.dirname(__file__), "unicode_classes.bin")
    data = np.fromfile(path, np.uint8)
    return data[:N_BLOCKS], data[N_BLOCKS:].reshape(-1, 256)


@cache
def _ascii_classes() -> bytes:
    index, blocks = _tables()
    return bytes(blocks[index[0]])


def _lookup(text: str) -> NDArray[np.uint8]:
    index, blocks = _tables()
    codes = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    classes: NDArray[np.uint8] = blocks[index[codes >> 8], codes & 255]
    return classes


def classes_of(text: str) -> bytes:
    """One class per character of `text`."""
    if text.isascii():
        return text.encode().translate(_ascii_classes())
    classes = _lookup(text) & ~np.uint8(NEW_TO_NFC)
    return bytes(classes)


def to_nfc(text: str) -> str:
    """`text` in normal form C, as of the Unicode version that `tokenizers` normalizes by.

    Characters newer than that are left alone and nothing moves across them, so the text falls apart at them.
    All others normalize alike in every version: that is Unicode's stability policy.
    """
    if text.isascii():
        return text
    from unicodedata import normalize  # a shared library: loaded by the first text that is not ASCII

    new = np.flatnonzero(_lookup(text) & NEW_TO_NFC)
    if not len(new):
        return normalize("NFC", text)
    parts: list[str] = []
    start = 0
    for position in new.tolist():
        parts += normalize("NFC", text[start:position]), text[position]
        start = position + 1
    return "".join([*parts, normalize("NFC", text[start:])])
