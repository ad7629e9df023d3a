# SPDX-License-Identifier: Apache-2.0
"""The state image's bytes, and that none that is not whole and one's own is used."""

import json
import os
from binascii import crc32
from collections.abc import Callable
from pathlib import Path

import pytest

from quickthaw.snapshot import image
from quickthaw.snapshot.errors import ImageError, ImageWriteError
from quickthaw.snapshot.image import StateImage

GOLDEN = Path(__file__).parents[2] / "golden" / "state.image"
FINGERPRINT = {"layout": "1", "shards": "ab cd"}
SECTIONS = {"token_ids": bytes(range(12)), "empty": b"", "kv": bytes(range(256)) * 17}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "state.image"
    image.write(str(path), FINGERPRINT, SECTIONS)
    return path


def read(path: Path) -> dict[str, bytes]:
    opened = StateImage.open(str(path), FINGERPRINT)
    return {name: bytes(opened.section(name)) for name in SECTIONS}


def test_the_golden_file_is_what_is_written_and_read() -> None:
    assert image.encode(FINGERPRINT, SECTIONS) == GOLDEN.read_bytes()
    assert read(GOLDEN) == SECTIONS


def test_the_layout_is_the_documented_one(path: Path) -> None:
    data = path.read_bytes()
    magic, numbers = data[:8], [int.from_bytes(data[at : at + 4], "little") for at in (8, 12, 16)]
    head = data[20 : 20 + numbers[1]]
    assert (magic, numbers[0], numbers[2]) == (b"QTHAWIMG", 1, crc32(head))
    record = json.loads(head)
    assert (record["fingerprint"], record["size_bytes"]) == (FINGERPRINT, len(data))
    for name, (offset, size_bytes, checksum) in record["sections"].items():
        assert offset % 4096 == 0
        assert data[offset : offset + size_bytes] == SECTIONS[name]
        assert checksum == crc32(SECTIONS[name])


def test_a_head_longer_than_a_page_is_no_different(tmp_path: Path) -> None:
    path, fingerprint = str(tmp_path / "x"), {"shards": "f" * 5000}
    image.write(path, fingerprint, SECTIONS)
    assert bytes(StateImage.open(path, fingerprint).section("kv")) == SECTIONS["kv"]


# --- each way to be unusable ---


@pytest.mark.parametrize(
    ("fingerprint", "reason"),
    [
        ({"layout": "2", "shards": "ab cd"}, "stale: made with another layout"),
        ({"layout": "2", "shards": "x"}, "stale: made with another layout, shards"),
        ({"layout": "1"}, "stale: made with another shards"),
        ({**FINGERPRINT, "dtype": "bf16"}, "stale: made with another dtype"),
    ],
)
def test_a_stale_one_says_what_has_changed(path: Path, fingerprint: dict[str, str], reason: str) -> None:
    with pytest.raises(ImageError, match=f"^{reason}$"):
        StateImage.open(str(path), fingerprint)


def flipped(at: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (flipped(0), "not a state image"),
        (flipped(8), "stale: of version 0, not 1"),
        (flipped(12), "its head is damaged"),
        (flipped(15), "its head is damaged"),
        (flipped(16), "its head is damaged"),
        (flipped(30), "its head is damaged"),
        (lambda data: data[:-1], "cut short"),
        (lambda data: data[:4096], "cut short"),
        (lambda data: data[:100], "its head is damaged"),
        (lambda data: data[:19], "cut short"),
        (lambda data: data[:0], "cut short"),
        (lambda data: data + b"\0", "longer than it says"),
    ],
)
def test_a_damaged_head_or_length_is_found_when_it_is_opened(
    path: Path, damage: Callable[[bytes], bytes], reason: str
) -> None:
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ImageError, match=f"^{reason}$"):
        StateImage.open(str(path), FINGERPRINT)


@pytest.mark.parametrize("name", ["token_ids", "kv"])
def test_a_damaged_section_is_found_when_it_is_asked_for_and_harms_no_other(path: Path, name: str) -> None:
    data = path.read_bytes()
    offset = json.loads(data[20 : 20 + int.from_bytes(data[12:16], "little")])["sections"][name][0]
    path.write_bytes(flipped(offset + len(SECTIONS[name]) - 1)(data))
    opened = StateImage.open(str(path), FINGERPRINT)
    for other in SECTIONS.keys() - {name}:
        assert opened.section(other) == SECTIONS[other]
    with pytest.raises(ImageError, match=f"^section {name} is damaged$"):
        opened.section(name)


def test_a_file_that_is_cut_short_while_it_is_mapped_is_not_read(path: Path) -> None:
    opened = StateImage.open(str(path), FINGERPRINT)
    os.truncate(path, 4096)
    with pytest.raises(ImageError, match="cut short while it was mapped"):
        opened.section("kv")


def test_no_such_section(path: Path) -> None:
    with pytest.raises(ImageError, match="no section other"):
        StateImage.open(str(path), FINGERPRINT).section("other")


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")  # opening it must not wait for a writer
    for name, reason in (("absent", "No such file"), (".", "not a file"), ("pipe", "not a file")):
        with pytest.raises(ImageError, match=reason):
            StateImage.open(str(tmp_path / name), FINGERPRINT)


# --- writing ---


def test_one_that_is_mapped_stays_as_it_was(path: Path) -> None:
    opened = StateImage.open(str(path), FINGERPRINT)
    image.write(str(path), FINGERPRINT, {**SECTIONS, "kv": b"other"})
    assert opened.section("kv") == SECTIONS["kv"]
    assert read(path)["kv"] == b"other"
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_what_cannot_be_written_says_so(tmp_path: Path) -> None:
    with pytest.raises(
        ImageWriteError, match=f"cannot write a state image: {tmp_path}/no/image: No such file"
    ):
        image.write(str(tmp_path / "no" / "image"), FINGERPRINT, SECTIONS)
