# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib
import struct
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quickthaw.layers.checkpoints import gguf_file
from quickthaw.layers.errors import CheckpointError
from tests import gguf_models, models

METADATA = {
    **gguf_models.metadata(models.config("llama")),
    "tokenizer.ggml.tokens": ["<s>", "ä", ""],
    "tokenizer.ggml.scores": [0.5, -1.0, 2.0],
    "tokenizer.ggml.add_bos_token": True,
}
WEIGHTS = models.tensors(models.config("llama"))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    return gguf_models.write_gguf(path, METADATA, WEIGHTS, gguf.GGMLQuantizationType.Q8_0).read_bytes()


def test_the_front_is_what_the_gguf_package_reads(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(data)
    reader = gguf.GGUFReader(path)

    found = gguf_file.read(path)

    theirs = {key: field.contents() for key, field in reader.fields.items() if not key.startswith("GGUF.")}
    assert found.metadata == theirs
    assert found.metadata["tokenizer.ggml.tokens"] == ["<s>", "ä", ""]
    assert found.tensors == {
        tensor.name: gguf_file.GgufTensor(
            tuple(reversed(tensor.shape.tolist())), int(tensor.tensor_type), tensor.data_offset
        )
        for tensor in reader.tensors
    }


def test_another_alignment_moves_the_data(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_custom_alignment(256)
    writer.add_tensor("a", np.ones(3, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    (tensor,) = gguf_file.read(path).tensors.values()

    assert tensor.offset_bytes % 256 == 0
    assert path.read_bytes()[tensor.offset_bytes :][:12] == np.ones(3, np.float32).tobytes()


@pytest.mark.parametrize(
    ("start", "named"),
    [
        (b"", "not a GGUF file"),
        (b"GGU", "not a GGUF file"),
        (b"PK\x03\x04" * 4, "not a GGUF file"),
        (b"GGUF\x00\x00\x00\x03", "big-endian"),
        (b"GGUF\x01\x00\x00\x00", "version.*found 1"),
        (b"GGUF\x63\x00\x00\x00", "version.*found 99"),
        (b"GGUF\x03\x00\x00\x00", "cannot read"),
    ],
)
def test_what_is_no_gguf_file_is_named(tmp_path: Path, start: bytes, named: str) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(start)

    with pytest.raises(CheckpointError, match=named) as caught:
        gguf_file.read(path)
    assert str(path) in str(caught.value)


def test_a_big_endian_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "big.gguf"
    gguf_models.write_gguf(path, METADATA, {}, endianess=gguf.GGUFEndian.BIG)

    with pytest.raises(CheckpointError, match="big-endian"):
        gguf_file.read(path)


@pytest.mark.parametrize("n_bytes", [12, 24, 40, 200, 600])
def test_a_file_that_ends_in_its_front_is_refused(data: bytes, tmp_path: Path, n_bytes: int) -> None:
    path = tmp_path / "cut.gguf"
    path.write_bytes(data[:n_bytes])

    with pytest.raises(CheckpointError, match=str(path)):
        gguf_file.read(path)


@given(offset=st.integers(8, 1200), value=st.sampled_from([0x00, 0x7F, 0xFF]))
def test_a_damaged_front_is_read_or_refused_but_never_hangs(
    data: bytes, tmp_path_factory: pytest.TempPathFactory, offset: int, value: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "damaged.gguf"
    path.write_bytes(data[:offset] + bytes([value]) + data[offset + 1 :])

    with contextlib.suppress(CheckpointError):
        gguf_file.read(path)


def test_bytes_that_are_no_text_survive(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_array("tokenizer.ggml.tokens", [b"\xff\xfe"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()

    (token,) = gguf_file.read(path).metadata["tokenizer.ggml.tokens"]

    assert token.encode("utf-8", "surrogateescape") == b"\xff\xfe"


def test_arrays_of_arrays_are_refused_however_deep(tmp_path: Path) -> None:
    path = tmp_path / "nested.gguf"
    array_of_one_array = struct.pack("<IQ", 9, 1)
    front = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 3) + b"key" + struct.pack("<I", 9)
    path.write_bytes(front + array_of_one_array * 5000)

    with pytest.raises(CheckpointError, match=r"nested\.gguf: found key has values of the unknown type 9"):
        gguf_file.read(path)
