# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import gguf
import numpy as np
import pytest

from quickthaw.layers.checkpoints.quantizer import Loss
from quickthaw.layers.checkpoints.quantizer import quantised as tensors_of
from quickthaw.layers.checkpoints.shard_file import write
from quickthaw.layers.checkpoints.split import split
from quickthaw.layers.errors import SplitError
from tests import models
from tests.quantised import Array, quantised

GOLDEN = Path(__file__).parents[3] / "golden" / "quantised.safetensors"


def random_weights(n_rows: int = 40, n_columns: int = 256) -> Array:
    return np.random.default_rng(3).standard_normal((n_rows, n_columns)).astype(np.float32)


def test_the_bytes_are_as_they_always_were(tmp_path: Path) -> None:
    matrix = (np.arange(2 * 128, dtype=np.float32).reshape(2, 128) - 77) / 64
    tensors = [
        tensor
        for dtype in ("int8", "int4", "int4-128")
        for tensor in tensors_of(dtype, matrix.shape, dtype, [matrix[:1], matrix[1:]], Loss())
    ]
    path = tmp_path / "layer-000.safetensors"
    write(path, tensors, lambda _: None)
    assert path.read_bytes() == GOLDEN.read_bytes()


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1"])
def test_what_was_in_four_bits_loses_nothing(kind: str) -> None:
    quant = gguf.GGMLQuantizationType[kind]
    weights = gguf.dequantize(gguf.quantize(random_weights(), quant), quant).astype(np.float32)
    loss = Loss()
    _, found = quantised(weights, "int4", loss)
    np.testing.assert_array_equal(found, weights)
    assert loss.relative == 0


@pytest.mark.parametrize(
    ("dtype", "most"), [("int8", 0.01), ("int4", 0.09), ("int4-128", 0.12)], ids=lambda each: str(each)
)
def test_the_loss_is_told_and_small(dtype: str, most: float) -> None:
    weights, loss = random_weights(), Loss()
    _, found = quantised(weights, dtype, loss)
    error = np.sqrt(np.square(found - weights).mean() / np.square(weights).mean())
    assert loss.relative == pytest.approx(error, rel=1e-4)
    assert 0 < error < most


@pytest.mark.parametrize("dtype", ["int8", "int4"])
@pytest.mark.parametrize("value", [0.0, -1.5, 1e-12])
def test_weights_that_are_all_alike(dtype: str, value: float) -> None:
    _, found = quantised(np.full((3, 64), value, np.float32), dtype)
    np.testing.assert_allclose(found, value, rtol=0.01, atol=1e-7)


def test_a_scale_is_a_bf16_and_no_row_leaves_its_range() -> None:
    matrix, _ = quantised(random_weights(), "int8")
    assert not (matrix.scale.view(np.uint32) & 0xFFFF).any()
    assert np.abs(matrix.weight.astype(int)).max() <= 127


def test_a_weight_too_large_for_a_group_is_refused() -> None:
    with pytest.raises(OverflowError, match="no int4"):
        quantised(np.full((1, 32), 1e6, np.float32), "int4")


def test_rows_that_are_no_whole_number_of_groups_are_refused(tmp_path: Path) -> None:
    config = models.config("llama")
    source = models.write_checkpoint(tmp_path / "source", config, models.tensors(config))
    with pytest.raises(SplitError, match=r"rows of qkv.*multiple of 128 columns, found 64.*--dtype"):
        split(str(source), tmp_path / "out", dtype="int4-128")


def test_splitting_says_what_it_cost(tmp_path: Path) -> None:
    config = models.config("llama")
    source = models.write_checkpoint(tmp_path / "source", config, models.tensors(config))
    (note,) = split(str(source), tmp_path / "out", dtype="int4").notes
    assert note.startswith("int4 changed the weights by ")
