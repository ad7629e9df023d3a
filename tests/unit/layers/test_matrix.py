# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pytest

from quickthaw.layers.crew import Crew
from quickthaw.layers.matrix import Int4, Int8, tiles
from quickthaw.layers.product import Product

RANDOM = np.random.default_rng(0)
N_OUT, N_IN = 37, 64


@pytest.mark.parametrize(
    "matrix",
    [
        RANDOM.standard_normal((N_OUT, N_IN), dtype=np.float32),
        Int8(
            RANDOM.integers(-128, 128, (N_OUT, N_IN), dtype=np.int8),
            RANDOM.standard_normal(N_OUT, dtype=np.float32),
        ),
        Int4(
            RANDOM.integers(0, 256, (N_OUT, N_IN // 2), dtype=np.uint8),
            RANDOM.standard_normal((N_OUT, 2)).astype(np.float16),
            RANDOM.standard_normal((N_OUT, 2)).astype(np.float16),
        ),
    ],
    ids=["f32", "int8", "int4"],
)
@pytest.mark.parametrize("tile_bytes", [1, 1000, 1 << 20])
def test_the_products_of_its_tiles_are_its_product(matrix: Int8 | Int4, tile_bytes: int) -> None:
    product, x = Product(Crew(1)), RANDOM.standard_normal((2, N_IN), dtype=np.float32)

    parts = [product(x, tile) for tile in tiles(matrix, tile_bytes)]

    assert np.allclose(np.concatenate(parts, axis=1), product(x, matrix), rtol=1e-5, atol=1e-4)
    assert sum(part.shape[1] for part in parts) == N_OUT
