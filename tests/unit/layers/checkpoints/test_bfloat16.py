# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quickthaw.layers.checkpoints.bfloat16 import from_float32


def widened(bits: int) -> float:
    return float(np.array([bits << 16], np.uint32).view(np.float32)[0])


@given(st.floats(width=32, min_value=-(2.0**127), max_value=2.0**127))
def test_the_nearest_is_taken_and_of_two_the_even_one(value: float) -> None:
    (bits,) = from_float32(np.array([value], np.float32)).tolist()

    error = abs(Fraction(widened(bits)) - Fraction(value))
    for neighbour in (bits - 1, bits + 1):
        if neighbour & 0x8000 == bits & 0x8000 and neighbour & 0x7FFF < 0x7F80:
            other = abs(Fraction(widened(neighbour)) - Fraction(value))
            assert error < other or (error == other and bits % 2 == 0)


@pytest.mark.parametrize("bits", [0x7FC00000, 0x7F800001, 0xFF800001, 0x7FFFFFFF, 0xFFFFFFFF])
def test_a_nan_stays_a_nan_of_its_sign(bits: int) -> None:
    (found,) = from_float32(np.array([bits], np.uint32).view(np.float32)).tolist()

    assert np.isnan(widened(found))
    assert found >> 15 == bits >> 31


def test_infinities_and_zeros_are_kept() -> None:
    values = np.array([np.inf, -np.inf, 0.0, -0.0], np.float32)

    assert from_float32(values).tolist() == [0x7F80, 0xFF80, 0x0000, 0x8000]


@pytest.mark.parametrize("sign", [1, -1])
def test_a_finite_value_never_becomes_infinite(sign: int) -> None:
    largest = np.float32(3.3895314e38)  # 0x7F7F: the largest bf16

    assert from_float32(np.array([sign * largest]))[0] & 0x7FFF == 0x7F7F
    with pytest.raises(OverflowError, match="bf16"):
        from_float32(np.array([1.0, sign * np.finfo(np.float32).max, np.nan], np.float32))


def test_the_shape_is_kept_also_of_a_strided_view() -> None:
    values = np.arange(24, dtype=np.float32).reshape(4, 6)[:, ::2]

    assert np.array_equal(from_float32(values), from_float32(values.copy()))
    assert from_float32(values).shape == (4, 3)
