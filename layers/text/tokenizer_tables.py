# SPDX-License-Identifier: Apache-2.0
"""The file of tokenizer tables: one writer and one reader. It is mapped; nothing but its settings is parsed.

    0         8 bytes   magic, b"QTHAWTOK"
    8         u32       format version, 2
    12        u32       n, the number of sections
    16        u64       size of the file in bytes
    24        n * 24    name (8 bytes, padded with spaces), offset u64, size in bytes u64
    …                   the sections, each on 8 bytes

    settings  UTF-8     a JSON object: see tokenizer_spec.py
    offsets   u32[t+1]  token i is bytes offsets[i] to offsets[i+1] of `bytes`; empty when no token has id i
    bytes     u8[]      the tokens as they read when decoded
    words     u32[]     hash table: token id + 1 of each word that is encoded as that one token
    byte_ids  u32[256]  the token that stands for a single byte, else 0xffffffff
    pairs     u64[m]    merge r joins tokens pairs[r] >> 32 and pairs[r] & 0xffffffff; lower r goes first
    merged    u32[m]    … into token merged[r]
    ranks     u32[]     hash table: r + 1 of each pair

Integers are little-endian. A hash table is searched from its key's home (`word_home`, `pair_home`), slot by
slot, until a 0 says that the key is absent; its last slot is a 0, so that a search never wraps around.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
from binascii import crc32
from collections.abc import Iterable, Mapping
from io import FileIO
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

import numpy as np

from quickthaw.layers.errors import TokenizerTablesError, TokenizerTablesVersionError

if TYPE_CHECKING:
    from _typeshed import StrPath
    from numpy.typing import NDArray

MAGIC = b"QTHAWTOK"
VERSION = 2
HEADER = struct.Struct("<8sIIQ")
SECTION = struct.Struct("<8sQQ")
FORMATS: dict[str, Literal["B", "I", "Q"]] = {  # section → memoryview format
    "settings": "B",
    "offsets": "I",
    "bytes": "B",
    "words": "I",
    "byte_ids": "I",
    "pairs": "Q",
    "merged": "I",
    "ranks": "I",
}
ABSENT = 0xFFFFFFFF
_SPREAD = 0x9E3779B97F4A7C15  # 2**64 / golden ratio: scatters neighbouring pairs


def word_home(word: bytes, n_homes: int) -> int:
    """The slot where the search for `word` begins.

    A checksum scatters short words, which as numbers would lie side by side and make all searches long.
    """
    return crc32(word) % n_homes


def pair_home(pair: int, n_homes: int) -> int:
    """The slot where the search for a pair of tokens begins."""
    return pair * _SPREAD % n_homes


def prime_above(number: int) -> int:
    """The number of homes for a table of `number // 2` keys: a prime, so that a remainder uses every bit."""
    candidate = number | 1
    while any(candidate % divisor == 0 for divisor in range(3, int(candidate**0.5) + 1, 2)):
        candidate += 2
    return candidate


def fill_slots(entries: Iterable[tuple[int, int]], n_homes: int) -> NDArray[np.uint32]:
    """The hash table of `entries`: each a home and the value to be found from there, stored plus 1."""
    slots = [0] * n_homes
    for home, value in entries:
        while home < len(slots) and slots[home]:
            home += 1
        if home == len(slots):
            slots.append(0)
        slots[home] = value + 1
    return np.array([*slots, 0], np.uint32)


def write_tables_file(out: BinaryIO, settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Writes the whole file; `arrays` holds every section but the settings."""
    text = json.dumps(settings, ensure_ascii=False, separators=(",", ":"))
    payloads = {"settings": text.encode()} | {name: array.tobytes() for name, array in arrays.items()}
    offset = HEADER.size + SECTION.size * len(FORMATS)
    directory, body = [], []
    for name in FORMATS:
        payload = payloads[name]
        directory.append(SECTION.pack(name.encode().ljust(8), offset, len(payload)))
        body.append(payload + b"\0" * (-len(payload) % 8))
        offset += len(body[-1])
    out.write(b"".join([HEADER.pack(MAGIC, VERSION, len(FORMATS), offset), *directory, *body]))


class TokenizerTables:
    """The sections of a mapped file. Raises: TokenizerTablesError saying what is wrong with the file."""

    def __init__(self, file: FileIO, path: StrPath) -> None:
        """`file` may be closed afterwards; `path` is named in errors."""
        self._path = path
        self._check_header(os.pread(file.fileno(), HEADER.size, 0), os.fstat(file.fileno()).st_size)
        self._view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        sections = self._read_directory()
        self.offsets = sections["offsets"]
        self.bytes = sections["bytes"]
        self.words = sections["words"]
        self.byte_ids = sections["byte_ids"]
        self.pairs = sections["pairs"]
        self.merged = sections["merged"]
        self.ranks = sections["ranks"]
        self._check_sizes()
        self.settings = self._read_settings(sections["settings"])

    def _check_header(self, header: bytes, size_bytes: int) -> None:
        if len(header) < HEADER.size:
            raise self._error(
                "tokenizer tables are too short", f"{HEADER.size} bytes", f"{len(header)} bytes"
            )
        magic, version, n_sections, expected_bytes = HEADER.unpack(header)
        if magic != MAGIC:
            raise self._error("not a file of tokenizer tables", MAGIC, magic)
        if version != VERSION:
            raise TokenizerTablesVersionError(
                "tokenizer tables of another format version",
                where=self._path,
                expected=VERSION,
                found=version,
                advice="split the checkpoint again with this version of quickthaw",
            )
        if size_bytes != expected_bytes:
            raise self._error(
                "tokenizer tables have the wrong size", f"{expected_bytes} bytes", f"{size_bytes} bytes"
            )
        if n_sections != len(FORMATS):
            raise self._error("tokenizer tables have the wrong sections", len(FORMATS), n_sections)

    def _read_directory(self) -> dict[str, memoryview[int]]:
        sections = {}
        end = HEADER.size + SECTION.size * len(FORMATS)
        if end > len(self._view):
            raise self._error("tokenizer tables are too short", f"{end} bytes", f"{len(self._view)} bytes")
        for index, (name, format_) in enumerate(FORMATS.items()):
            found, offset, size_bytes = SECTION.unpack_from(self._view, HEADER.size + SECTION.size * index)
            if found != name.encode().ljust(8):
                raise self._error(f"tokenizer tables lack the section {name}", name, found)
            if offset < end or offset % 8 or offset + size_bytes > len(self._view):
                raise self._error(
                    f"section {name} of the tokenizer tables lies outside the file",
                    f"{end} to {len(self._view)}",
                    f"{offset} to {offset + size_bytes}",
                )
            if size_bytes % struct.calcsize(format_):
                raise self._error(
                    f"section {name} of the tokenizer tables has half an entry", None, size_bytes
                )
            end = offset + size_bytes
            sections[name] = self._view[offset:end].cast(format_)
        return sections

    def _check_sizes(self) -> None:
        """What the lookups rely on; the bits inside a section are the digest's business."""
        sound = {
            "offsets": len(self.offsets) > 0 and self.offsets[0] == 0 and self.offsets[-1] == len(self.bytes),
            "words": len(self.words) > 1 and self.words[-1] == 0,
            "byte_ids": len(self.byte_ids) == 256,
            "merged": len(self.merged) == len(self.pairs),
            "ranks": len(self.ranks) > 1 and self.ranks[-1] == 0,
        }
        for name, is_sound in sound.items():
            if not is_sound:
                raise self._error(f"section {name} of the tokenizer tables is damaged", None, None)

    def _read_settings(self, section: memoryview[int]) -> dict[str, Any]:
        try:
            settings = json.loads(bytes(section))
        except ValueError as exc:
            raise self._error("the settings of the tokenizer tables are damaged", "JSON", exc) from exc
        if not isinstance(settings, dict):
            raise self._error(
                "the settings of the tokenizer tables are damaged", "an object", type(settings).__name__
            )
        return settings

    def _error(self, failure: str, expected: object, found: object) -> TokenizerTablesError:
        return TokenizerTablesError(
            failure, where=self._path, expected=expected, found=found, advice="split the checkpoint again"
        )
