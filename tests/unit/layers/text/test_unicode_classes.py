# SPDX-License-Identifier: Apache-2.0
"""The classes and the normal form of every code point equal those of the `tokenizers` package."""

from __future__ import annotations

import pytest
from tokenizers import Regex, normalizers, pre_tokenizers

from quickthaw.layers.text.unicode_classes import classes_of, to_nfc

CHARACTERS = "".join(chr(code) for code in range(0x110000) if not 0xD800 <= code <= 0xDFFF)
CHUNKS = [CHARACTERS[start : start + 50_000] for start in range(0, len(CHARACTERS), 50_000)]
LOWER, UPPER = "strevmlda", "STREVMLDA"


def matching(pattern: str) -> set[str]:
    """The characters that a split with `pattern` removes."""
    split = pre_tokenizers.Split(Regex(pattern), "removed")
    left = (piece for chunk in CHUNKS for piece, _ in split.pre_tokenize_str(chunk))
    return set(CHARACTERS).difference(*left)


def of_class(letters: str) -> set[str]:
    classes = classes_of(CHARACTERS).decode()
    return {character for character, class_ in zip(CHARACTERS, classes, strict=True) if class_ in letters}


@pytest.mark.parametrize(
    ("letters", "pattern"),
    [
        (LOWER + UPPER + "of", r"\p{L}"),
        (UPPER, r"[\p{Lu}\p{Lt}]"),
        (LOWER + "f", r"\p{Ll}"),
        ("o", r"[\p{Lm}\p{Lo}]"),
        ("^", r"\p{M}"),
        ("0", r"\p{N}"),
        (" \t\r\n", r"\s"),
        ("sSf", "(?i:s)"),
        ("tT", "(?i:t)"),
        ("rReEvVmMlLdD", "(?i:[revmld])"),
        ("'", "'"),
        ("/", "/"),
    ],
)
def test_a_class_holds_what_the_expression_matches(letters: str, pattern: str) -> None:
    assert of_class(letters) == matching(pattern)


def test_numbers_are_what_digits_isolates() -> None:
    split = pre_tokenizers.Digits(individual_digits=True)
    numbers = of_class("0#")
    for start in range(0, len(CHARACTERS), 5_000):
        chunk = CHARACTERS[start : start + 5_000]
        pieces = split.pre_tokenize_str("a" + "a".join(chunk) + "a")
        assert {p for p, _ in pieces if len(p) == 1 and p != "a"} == numbers.intersection(chunk)


def test_only_ascii_letters_keep_their_letter() -> None:
    for letters in "strevmldSTREVMLD '/\r\n":
        assert of_class(letters) == {letters}


# A mark on either side shows whether the character composes, is reordered, or blocks both.
@pytest.mark.parametrize(
    "around", ["{}", "\u0345{}", "\u0301{}\u0323", "{}\u0301", "a{}\u0334\u0301", "\u1100{}\u11a8"]
)
def test_normal_form_of_every_character(around: str) -> None:
    reference = normalizers.NFC()
    for chunk in CHUNKS:
        text = "\n".join(around.format(character) for character in chunk)
        assert to_nfc(text) == reference.normalize_str(text)
