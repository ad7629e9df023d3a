# SPDX-License-Identifier: Apache-2.0
import math

import numpy as np
import pytest

from quickthaw.layers.architecture import Rope
from quickthaw.layers.rope import Rotation, rotate


def angle(rotation: Rotation, position: int, pair: int, n_positions: int | None = None) -> float:
    cosines, sines = rotation.at(position, position + 1, n_positions or position + 1)
    return math.atan2(sines[0, 0, pair], cosines[0, 0, pair])


def test_pair_i_turns_by_theta_to_the_minus_2i_over_d() -> None:
    rotation = Rotation(Rope(theta=10000.0), head_dim=8)
    for pair in range(4):
        assert angle(rotation, 1, pair) == pytest.approx(10000.0 ** (-2 * pair / 8), rel=1e-5)


def test_linear_scaling_slows_positions_down() -> None:
    plain, scaled = Rotation(Rope(10000.0), 8), Rotation(Rope(10000.0, "linear", factor=4.0), 8)
    assert angle(scaled, 4, 1) == pytest.approx(angle(plain, 1, 1), rel=1e-5)


def test_llama3_keeps_short_wavelengths_and_stretches_long_ones() -> None:
    rope = Rope(500000.0, "llama3", 8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_positions=32)
    plain, scaled = Rotation(Rope(500000.0), 64), Rotation(rope, 64)
    assert angle(scaled, 1, 0) == pytest.approx(angle(plain, 1, 0), rel=1e-5)
    assert angle(scaled, 8, 31) == pytest.approx(angle(plain, 1, 31), rel=1e-5)


def test_dynamic_scaling_begins_beyond_the_trained_length() -> None:
    rope = Rope(10000.0, "dynamic", factor=2.0, original_positions=32)
    plain, scaled = Rotation(Rope(10000.0), 8), Rotation(rope, 8)
    assert angle(scaled, 5, 1, n_positions=32) == angle(plain, 5, 1)
    theta = 10000.0 * (2.0 * 64 / 32 - 1.0) ** (8 / 6)
    assert angle(scaled, 1, 1, n_positions=64) == pytest.approx(theta ** (-2 / 8), rel=1e-5)


def test_frequency_factors_divide_each_pair() -> None:
    rotation = Rotation(Rope(10000.0, "factors", frequency_factors=(1.0, 2.0, 4.0, 8.0)), 8)
    for pair, factor in enumerate((1.0, 2.0, 4.0, 8.0)):
        assert angle(rotation, 1, pair) == pytest.approx(10000.0 ** (-2 * pair / 8) / factor, rel=1e-5)


def test_rotation_keeps_lengths_and_turns_by_difference_of_positions() -> None:
    random = np.random.default_rng(0)
    heads = random.standard_normal((2, 3, 8), dtype=np.float32)
    rotation = Rotation(Rope(10000.0), 8)

    def turned(position: int) -> np.ndarray:
        return rotate(heads, *rotation.at(position, position + 2, position + 2))

    np.testing.assert_allclose(np.linalg.norm(turned(7), axis=-1), np.linalg.norm(heads, axis=-1), rtol=1e-5)
    near, far = turned(3), turned(103)
    np.testing.assert_allclose(
        np.einsum("hd,hd->h", near[0], near[1]), np.einsum("hd,hd->h", far[0], far[1]), rtol=1e-3, atol=1e-4
    )
