# SPDX-License-Identifier: Apache-2.0
"""Cuts a text into the words inside which byte pairs are merged, exactly as the `tokenizers` package does.

A byte-level split is one of `SPLITS`: the model's regular expression, rewritten over the class letters of
unicode_classes.py. There `[A-Za-z]` is \\p{L}, `0` is \\p{N}, and `\\s` matches just the four class letters
that stand for white space.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal

from quickthaw.layers.text.unicode_classes import classes_of

SPACE = "▁"  # how SentencePiece writes a space

_CONTRACTION = rb"'(?:[stmd]|re|ve|ll)"
_ANY_CASE_CONTRACTION = rb"'(?:[sStTmMdDf]|[rR][eE]|[vV][eE]|[lL][lL])"
_SPACES = rb"\s+(?!\S)|\s+"
_LINES = rb" ?[^\sA-Za-z0]+[\r\n]*|\s*[\r\n]+|" + _SPACES

SPLITS = {
    "gpt2": _CONTRACTION + rb"| ?[A-Za-z]+| ?0+| ?[^\sA-Za-z0]+|" + _SPACES,
    # Digits(individual_digits=True), then GPT-2's within each part: so a digit ends a text like its end does.
    "smollm": rb"[0#]|" + _CONTRACTION + rb"| ?[A-Za-z]+| ?[^\sA-Za-z0#]+|\s+(?![^\s0#])|\s+",
    "llama3": _ANY_CASE_CONTRACTION + rb"|[^\r\nA-Za-z0]?[A-Za-z]+|0{1,3}|" + _LINES,
    "qwen2": _ANY_CASE_CONTRACTION + rb"|[^\r\nA-Za-z0]?[A-Za-z]+|0|" + _LINES,
}

# The same as tokenizer.json files write it in a Split.
_ANY_CASE = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
EXPRESSIONS = {
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+": "gpt2",
    _ANY_CASE + r"\p{N}{1,3}" + _REST: "llama3",
    _ANY_CASE + r"\p{N}" + _REST: "qwen2",
}

# A SentencePiece text is one word, unless its merges or its pre-tokenizer never reach across some boundary.
SENTENCEPIECE_SPLITS = {
    "whole": r"(?s:.+)",
    "before_spaces": f"{SPACE}*[^{SPACE}]+|{SPACE}+",  # before each run of spaces
    "before_each_space": f"{SPACE}[^{SPACE}]*|[^{SPACE}]+",
}


# A Metaspace pre-tokenizer writes spaces as ▁ and puts one before each stretch of text between added tokens,
# before the first only, or before none; and never where there is a space already.
Metaspace = Literal["always", "first", "never"]


def word_splitter(split: str) -> Callable[[str], list[bytes]]:
    """A function from text to its words in UTF-8; joined, they are the text."""
    if split in SENTENCEPIECE_SPLITS:
        find = re.compile(SENTENCEPIECE_SPLITS[split]).findall
        return lambda text: [word.encode() for word in find(text)]
    find_classes = re.compile(SPLITS[split]).findall
    return lambda text: _cut(text, find_classes(classes_of(text)))


def _cut(text: str, lengths: list[bytes]) -> list[bytes]:
    """The words of `text` as long, in characters, as each of `lengths`."""
    words, start = [], 0
    if text.isascii():
        data = text.encode()
        for length in lengths:
            end = start + len(length)
            words.append(data[start:end])
            start = end
        return words
    for length in lengths:
        end = start + len(length)
        words.append(text[start:end].encode())
        start = end
    return words
