# SPDX-License-Identifier: Apache-2.0
"""Writes layers/text/unicode_classes.bin: the class of every code point, as `tokenizers` sees it.

No Unicode database is asked for letters or numbers: the regular expressions, the digit splitter and the
normalizer of `tokenizers` are asked about all 1,112,064 characters. Run it again when they learn a new one:

    python tests/golden/make_unicode_classes.py

Takes about 20 s. The layout is drawn in layers/text/unicode_classes.py.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from tokenizers import Regex, normalizers, pre_tokenizers

CHARACTERS = [code for code in range(0x110000) if not 0xD800 <= code <= 0xDFFF]
BLOCK = 256
NEW_TO_NFC = 0x80
TARGET = Path(__file__).parents[2] / "layers" / "text" / "unicode_classes.bin"


def _chunks(size: int) -> Iterator[list[int]]:
    for start in range(0, len(CHARACTERS), size):
        yield CHARACTERS[start : start + size]


def matching(pattern: str) -> set[int]:
    """The characters that one-character `pattern` matches: what a split that removes it takes away."""
    split = pre_tokenizers.Split(Regex(pattern), "removed")
    members = set(CHARACTERS)
    for chunk in _chunks(20_000):
        for _, (start, end) in split.pre_tokenize_str("".join(map(chr, chunk))):
            members.difference_update(chunk[start:end])
    return members


def numeric() -> set[int]:
    """The characters that Digits isolates. It knows a newer Unicode than `\\p{N}` does."""
    digits = pre_tokenizers.Digits(individual_digits=True)
    members = set()
    for chunk in _chunks(2_000):
        text = "a" + "a".join(map(chr, chunk)) + "a"
        for _, (start, end) in digits.pre_tokenize_str(text):
            if end - start == 1 and start % 2 == 1:
                members.add(chunk[start // 2])
    return members


def _is_inert(normalizer: normalizers.Normalizer, character: str) -> bool:
    """True when NFC leaves `character` alone and nothing is reordered across it or composed with it."""
    around = ("{}", "\u0345{}", "\u0301{}\u0323", "{}\u0301", "{}\u0334", "a{}\u0301")
    probes = [probe.format(character) for probe in around]
    return all(normalizer.normalize_str(probe) == probe for probe in probes)


def new_to_nfc() -> set[int]:
    """The characters that are newer than the NFC of `tokenizers`: it leaves them alone, Python may not.

    Unassigned ones count as well, whatever a later Unicode makes of them.
    """
    nfc = normalizers.NFC()
    members = set()
    for code in CHARACTERS:
        character = chr(code)
        is_unassigned = unicodedata.category(character) == "Cn"
        has_properties = unicodedata.combining(character) or unicodedata.decomposition(character)
        composes = _composes_in_python(character)
        if (is_unassigned or has_properties or composes) and _is_inert(nfc, character):
            members.add(code)
    return members


def _composes_in_python(character: str) -> bool:
    probes = ("\u0301{}\u0323", "\u0345{}", "{}\u0301", "{}\u0334")
    return any(unicodedata.normalize("NFC", p.format(character)) != p.format(character) for p in probes)


def classes() -> np.ndarray:
    """(0x110000,) u8: the class letter of each code point, plus NEW_TO_NFC."""
    table = np.full(0x110000, ord("."), np.uint8)

    def assign(letter: str, members: set[int]) -> None:
        table[sorted(members)] = ord(letter)

    assign("^", matching(r"\p{M}"))
    assign("o", matching(r"[\p{Lm}\p{Lo}]"))
    assign("A", matching(r"[\p{Lu}\p{Lt}]"))
    assign("a", matching(r"\p{Ll}"))
    assign("#", numeric())
    assign("0", matching(r"\p{N}"))
    assign("\t", matching(r"\s"))
    assign("f", matching("(?i:s)") - {ord("s"), ord("S")})
    for letter in "strevmldSTREVMLD \r\n'/":
        table[ord(letter)] = ord(letter)
    table[sorted(new_to_nfc())] |= NEW_TO_NFC
    return table


def main() -> None:
    blocks = classes().reshape(-1, BLOCK)
    distinct, index = np.unique(blocks, axis=0, return_inverse=True)
    assert len(distinct) <= 256, "the block index is one byte"
    TARGET.write_bytes(index.astype(np.uint8).tobytes() + distinct.tobytes())
    print(f"{TARGET}: {len(distinct)} distinct blocks, {TARGET.stat().st_size} bytes")


if __name__ == "__main__":
    main()
