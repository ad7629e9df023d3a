# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from quickthaw.layers import product
from quickthaw.layers.crew import Crew
from quickthaw.layers.product import Product
from tests.quantised import quantised


@pytest.fixture
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(product, "_TILE_BYTES", 256)


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("n_lanes", [1, 3])
@pytest.mark.parametrize("n_tokens", [1, 2, 5, 6, 40])
@pytest.mark.parametrize(("n_out", "n_in"), [(1, 2), (37, 24), (64, 64), (5, 130)])
@pytest.mark.parametrize("stored", ["f32", "bf16"])
def test_equals_the_plain_product(n_lanes: int, n_tokens: int, n_out: int, n_in: int, stored: str) -> None:
    random = np.random.default_rng(n_out * n_in * n_tokens)
    x = random.standard_normal((n_tokens, n_in), dtype=np.float32)
    weight = random.standard_normal((n_out, n_in), dtype=np.float32)
    bits = (weight.view(np.uint32) >> 16).astype(np.uint16)
    if stored == "bf16":
        weight = (bits.astype(np.uint32) << 16).view(np.float32)
    crew = Crew(n_lanes)
    result = Product(crew)(x, bits if stored == "bf16" else weight)
    crew.release()
    assert result.shape == (n_tokens, n_out)
    assert result.dtype == np.float32
    np.testing.assert_allclose(
        result, x.astype(np.float64) @ weight.T.astype(np.float64), rtol=1e-4, atol=1e-5
    )


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("dtype", ["int8", "int4", "int4-128"])
@pytest.mark.parametrize("n_tokens", [1, 6])
def test_quantised_matrices_are_multiplied_as_what_they_stand_for(dtype: str, n_tokens: int) -> None:
    random = np.random.default_rng(n_tokens)
    x = random.standard_normal((n_tokens, 256), dtype=np.float32)
    matrix, values = quantised(random.standard_normal((37, 256), dtype=np.float32), dtype)
    result = Product(Crew(1))(x, matrix)
    np.testing.assert_allclose(result, x @ values.T, rtol=1e-4, atol=1e-4)


def test_one_product_feeds_the_next_whatever_its_layout() -> None:
    random = np.random.default_rng(0)
    x = random.standard_normal((9, 8), dtype=np.float32)
    first = random.standard_normal((6, 8), dtype=np.float32)
    second = random.standard_normal((4, 6), dtype=np.float32)
    multiply = Product(Crew(1))
    np.testing.assert_allclose(multiply(multiply(x, first), second), x @ first.T @ second.T, rtol=1e-4)


def test_read_only_weights_are_multiplied_where_they_lie() -> None:
    weight = np.ones((4, 8), np.float32)
    weight.flags.writeable = False
    np.testing.assert_array_equal(Product(Crew(1))(np.ones((1, 8), np.float32), weight), [[8.0] * 4])
