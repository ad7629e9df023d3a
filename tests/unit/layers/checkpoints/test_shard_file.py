# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open

from quickthaw.layers.checkpoints.shard_file import NewTensor, write
from quickthaw.layers.shard_entry import TensorEntry

GOLDEN = Path(__file__).parents[3] / "golden" / "shard.safetensors"


def ignore(size_bytes: int) -> None:
    """Progress that nobody watches."""


def new_tensor(name: str, dtype: str, values: np.ndarray, n_tiles: int = 1) -> NewTensor:
    return NewTensor(name, dtype, values.shape, np.array_split(values, min(n_tiles, len(values))))


def golden_tensors() -> list[NewTensor]:
    matrix = np.arange(15, dtype=np.float32).reshape(5, 3) / 8
    return [
        new_tensor("norm", "F32", np.array([1.0, -0.5, 2.0], np.float32)),
        new_tensor("matrix", "BF16", matrix, n_tiles=2),
        new_tensor("aligned", "F32", np.full(16, 0.25, np.float32)),
        new_tensor("last", "BF16", np.array([[1.0]], np.float32)),
    ]


def test_the_bytes_are_as_they_always_were(tmp_path: Path) -> None:
    path = tmp_path / "layer-000.safetensors"

    entry = write(path, golden_tensors(), ignore)

    assert path.read_bytes() == GOLDEN.read_bytes()
    assert entry.sha256 == hashlib.sha256(GOLDEN.read_bytes()).hexdigest()
    assert entry.size_bytes == GOLDEN.stat().st_size
    assert entry.tensors["matrix"] == TensorEntry("BF16", (5, 3), 4096 + 64)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["F32", "BF16"]), st.integers(1, 40), st.integers(1, 40), st.integers(1, 5)
        ),
        min_size=1,
        max_size=12,
    )
)
def test_the_safetensors_library_reads_what_was_written(specs: list[tuple[str, int, int, int]]) -> None:
    tensors, values = [], {}
    for index, (dtype, n_rows, n_columns, n_tiles) in enumerate(specs):
        array = np.arange(n_rows * n_columns, dtype=np.float32).reshape(n_rows, n_columns) % 250
        values[f"t{index}"] = array
        tensors.append(new_tensor(f"t{index}", dtype, array, n_tiles))
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "x.safetensors")
        n_told = []
        entry = write(path, tensors, n_told.append)
        data = path.read_bytes()
        with safe_open(path, "np") as file:
            names = {name for name in file.keys() if not name.startswith("_pad.")}  # noqa: SIM118
            assert names == values.keys()
            for name in names:
                assert tuple(file.get_slice(name).get_shape()) == values[name].shape

    assert sum(n_told) == entry.size_bytes == len(data)
    assert entry.sha256 == hashlib.sha256(data).hexdigest()
    assert int.from_bytes(data[:8], "little") % 4096 == 4096 - 8
    for name, place in entry.tensors.items():
        assert place.offset_bytes % 64 == 0
        raw = np.frombuffer(
            data, "<f4" if place.dtype == "F32" else "<u2", values[name].size, place.offset_bytes
        )
        found = raw if place.dtype == "F32" else (raw.astype(np.uint32) << 16).view(np.float32)
        assert np.array_equal(found.reshape(place.shape), values[name])


def test_a_header_longer_than_a_page_takes_more_pages(tmp_path: Path) -> None:
    tensors = [new_tensor(f"{index:0100}", "F32", np.ones(16, np.float32)) for index in range(50)]

    entry = write(tmp_path / "x", tensors, ignore)

    first = min(place.offset_bytes for place in entry.tensors.values())
    assert first > 4096
    assert first % 4096 == 0


def test_a_value_without_a_bf16_names_its_tensor(tmp_path: Path) -> None:
    too_large = np.full((2, 2), np.finfo(np.float32).max, np.float32)

    with pytest.raises(OverflowError, match="tensor down"):
        write(tmp_path / "x", [new_tensor("down", "BF16", too_large)], ignore)


def test_an_existing_file_is_never_written_over(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"kept")

    with pytest.raises(FileExistsError):
        write(tmp_path / "x", [], ignore)
    assert (tmp_path / "x").read_bytes() == b"kept"
