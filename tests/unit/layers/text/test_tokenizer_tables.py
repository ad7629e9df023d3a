# SPDX-License-Identifier: Apache-2.0
"""A damaged file of tokenizer tables is refused; each test damages one thing."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from quickthaw.layers.errors import TokenizerTablesError, TokenizerTablesVersionError
from quickthaw.layers.text.tokenizer import Tokenizer
from quickthaw.layers.text.tokenizer_source import write_tables
from quickthaw.layers.text.tokenizer_tables import FORMATS, HEADER, SECTION, fill_slots, prime_above
from tests.golden.tokenizer_models import byte_level


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    directory = tmp_path_factory.mktemp("tables")
    byte_level("gpt2").save(str(directory / "tokenizer.json"))
    with open(directory / "tokenizer.bin", "wb") as out:
        write_tables(directory, out)
    return (directory / "tokenizer.bin").read_bytes()


def entry(name: str) -> int:
    """Where a section's directory entry lies."""
    return HEADER.size + SECTION.size * list(FORMATS).index(name)


def overwrite(offset: int, data: bytes) -> Callable[[bytes], bytes]:
    return lambda file: file[:offset] + data + file[offset + len(data) :]


def in_section(name: str, data: bytes, *, at_end: bool = False) -> Callable[[bytes], bytes]:
    def damage(file: bytes) -> bytes:
        _, offset, size_bytes = SECTION.unpack_from(file, entry(name))
        return overwrite(offset + size_bytes - len(data) if at_end else offset, data)(file)

    return damage


U64 = struct.Struct("<Q").pack
DAMAGES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "empty": (lambda _: b"", "too short"),
    "only magic": (lambda file: file[:8], "too short"),
    "only a header": (lambda file: file[: HEADER.size], "wrong size"),
    "short": (lambda file: file[:-1], "wrong size"),
    "long": (lambda file: file + b"\0", "wrong size"),
    "another file": (overwrite(0, b"GGUF"), "not a file of tokenizer tables"),
    "too few sections": (overwrite(12, struct.pack("<I", 3)), "wrong sections"),
    "another section": (overwrite(entry("pairs"), b"parts   "), "lack the section pairs"),
    "offset beyond the end": (overwrite(entry("merged") + 8, U64(1 << 60)), "section merged .* outside"),
    "size beyond the end": (overwrite(entry("ranks") + 16, U64(1 << 60)), "section ranks .* outside"),
    "overlapping": (overwrite(entry("words") + 8, U64(0)), "section words .* outside"),
    "unaligned": (overwrite(entry("ranks") + 8, U64(4097)), "outside"),
    "half an entry": (overwrite(entry("ranks") + 16, U64(7)), "half an entry"),
    "settings that are no JSON": (in_section("settings", b"\xff"), "settings .* damaged"),
    "first offset": (in_section("offsets", b"\1"), "offsets .* damaged"),
    "last offset": (in_section("offsets", b"\xff" * 4, at_end=True), "offsets .* damaged"),
    "no end of the words": (in_section("words", b"\1\0\0\0", at_end=True), "words .* damaged"),
    "no end of the ranks": (in_section("ranks", b"\1\0\0\0", at_end=True), "ranks .* damaged"),
}


@pytest.mark.parametrize("name", list(DAMAGES))
def test_damage_is_refused_by_name(tables: bytes, tmp_path: Path, name: str) -> None:
    damage, message = DAMAGES[name]
    path = tmp_path / "tokenizer.bin"
    path.write_bytes(damage(tables))
    with pytest.raises(TokenizerTablesError, match=message) as info:
        Tokenizer.open(path)
    assert str(path) in str(info.value)


def test_a_newer_format_is_refused(tables: bytes, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.bin"
    path.write_bytes(overwrite(8, struct.pack("<I", 3))(tables))
    with pytest.raises(TokenizerTablesVersionError, match="expected 2, found 3"):
        Tokenizer.open(path)


def test_slots_end_in_an_empty_one() -> None:
    assert fill_slots([(4, 10), (4, 11), (0, 12)], 5).tolist() == [13, 0, 0, 0, 11, 12, 0]


def test_homes_are_prime() -> None:
    assert [prime_above(number) for number in (2, 8, 10, 24, 98)] == [3, 11, 11, 29, 101]
