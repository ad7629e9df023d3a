# SPDX-License-Identifier: Apache-2.0
"""The classes and the normal form of every code point equal those of the `tokenizers` package."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, normalizers, pre_tokenizers

from quickthaw.layers.text.unicode_classes import NFC_SHRINKAGE, classes_of, to_nfc

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


# Marks of many classes and of none, marks that fall apart, one that is new to the reference; letters.
PIECES = "\u0301\u0323\u0344\u0345\u0f71\u0f73\u0f75\u0591\u0488\u3099\u0903\U0001e08f\u00e9\u1fbe가a"


@settings(deadline=None)
@given(runs=st.lists(st.tuples(st.text(PIECES, min_size=1, max_size=6), st.integers(1, 60)), max_size=4))
def test_normal_form_of_long_runs(runs: list[tuple[str, int]]) -> None:
    text = "a" + "".join(unit * count for unit, count in runs)
    assert to_nfc(text) == normalizers.NFC().normalize_str(text)


@pytest.mark.parametrize("unit", ["\u0301\u0323", "\u0f73", "\u0344\u0591", "\u0488\u0301\u0323"])
def test_no_long_run_is_left_to_be_ordered_by_insertion(unit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    n_moves = 0

    def normalize(form: str, text: str) -> str:
        nonlocal n_moves
        n_moves += insertions(reference("NFD", mark) for mark in text)
        return reference(form, text)

    reference = unicodedata.normalize
    monkeypatch.setattr(unicodedata, "normalize", normalize)
    to_nfc("a" + unit * 500)
    assert n_moves <= 500


def insertions(decomposed: Iterable[str]) -> int:
    """How often two marks change places when each is inserted among those before it."""
    n_moves = 0
    run: list[int] = []
    for mark in "".join(decomposed):
        class_ = unicodedata.combining(mark)
        run = [*run, class_] if class_ else []
        n_moves += sum(earlier > class_ for earlier in run)
    return n_moves


def test_no_text_shrinks_by_more_than_the_bound() -> None:
    """Both forms are a text's decompositions put together, so it is enough to weigh single characters.

    A decomposed character weighs as much as the longest character that may stand for it alone.
    """
    decompositions = {character: unicodedata.normalize("NFD", character) for character in CHARACTERS}
    weights: dict[str, int] = {}
    for character, parts in decompositions.items():
        if len(parts) == 1:
            weights[parts] = max(weights.get(parts, 0), len(character.encode()))
    for character, parts in decompositions.items():
        weight = sum(weights[part] for part in parts)
        assert len(character.encode()) <= weight <= NFC_SHRINKAGE * len(character.encode())
