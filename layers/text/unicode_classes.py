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
import re
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

N_BLOCKS = 0x110000 // 256
NEW_TO_NFC = 0x80
# NFC makes a text at most this many times shorter, in bytes. \u1fbe\u0308\u0301 → \u0390 is the worst, 7 → 2;
# the tests go through all characters.
NFC_SHRINKAGE = 4
_LONG_RUN_OF_MARKS = rb"\^{32,}"


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

    text = _with_marks_in_order(text)
    new = np.flatnonzero(_lookup(text) & NEW_TO_NFC)
    if not len(new):
        return normalize("NFC", text)
    parts: list[str] = []
    start = 0
    for position in new.tolist():
        parts += normalize("NFC", text[start:position]), text[position]
        start = position + 1
    return "".join([*parts, normalize("NFC", text[start:])])


def _with_marks_in_order(text: str) -> str:
    """An equivalent text: its long runs of marks are decomposed and in canonical order.

    Python's `normalize` orders a run by insertion, in the square of its length; one in order costs no more.
    """
    parts: list[str] = []
    start = 0
    for run in re.finditer(_LONG_RUN_OF_MARKS, bytes(_lookup(text))):
        parts += text[start : run.start()], _in_order(text[run.start() : run.end()])
        start = run.end()
    return "".join([*parts, text[start:]])


def _in_order(marks: str) -> str:
    from unicodedata import combining, normalize

    # One by one, because together they would be put in order by insertion.
    decomposed = [part for mark in marks for part in normalize("NFD", mark)]
    ordered: list[str] = []
    for _, movable in groupby(decomposed, key=lambda mark: combining(mark) > 0):
        ordered += sorted(movable, key=combining)  # stable; where nothing is movable it changes nothing
    return "".join(ordered)
