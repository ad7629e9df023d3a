# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from quickthaw.layers import memory
from quickthaw.layers.errors import MemoryBudgetError
from quickthaw.layers.residency import TILE_BYTES, Budget, Plan, plan

SIZES = [10] * 8


def test_without_a_limit_nothing_goes_and_the_window_comes() -> None:
    assert plan(SIZES, {0, 1}, 1, 3, None) == Plan([], [2, 3, 4])
    assert plan(SIZES, range(8), 7, 3, None) == Plan([], [])


def test_the_window_goes_on_with_the_next_token() -> None:
    assert plan(SIZES, {6}, 6, 3, None).load == [7, 0, 1]


def test_what_was_used_last_goes_first() -> None:
    assert plan(SIZES, {0, 1, 2, 3}, 4, 0, 40) == Plan([3], [4])
    assert plan(SIZES, {0, 1, 2, 3}, 4, 1, 40) == Plan([2, 3], [4, 5])


def test_the_layer_at_hand_comes_however_little_room_there_is() -> None:
    assert plan(SIZES, {3, 5}, 4, 5, 10) == Plan([5, 3], [4])


@pytest.mark.parametrize("capacity", [10, 25, 40, 70])
@pytest.mark.parametrize("window", [0, 2, 5])
def test_pass_after_pass_there_is_never_more_than_fits(capacity: int, window: int) -> None:
    held: set[int] = set()
    n_loaded = 0
    for step in range(10 * len(SIZES)):
        todo = plan(SIZES, held, step % len(SIZES), window, capacity)
        assert not set(todo.evict) & {step % len(SIZES), *todo.load}
        held = held - set(todo.evict) | set(todo.load)
        assert step % len(SIZES) in held
        assert 10 * len(held) <= capacity
        n_loaded += len(todo.load)

    # LRU would load all 8 for each pass; what fits beyond the window stays.
    n_kept = max(0, capacity // 10 - 1 - window)
    assert n_loaded <= 10 * (len(SIZES) - n_kept) + capacity


def test_a_budget_that_holds_the_model_is_no_limit() -> None:
    own_bytes = memory.anonymous_bytes()
    assert Budget(own_bytes + (200 << 20), [1 << 20] * 8, 1 << 20).capacity_bytes(0) is None


def test_the_rest_of_a_budget_is_for_layers() -> None:
    own_bytes = memory.anonymous_bytes()
    capacity = Budget(own_bytes + (40 << 20), [16 << 20] * 8, 1 << 30).capacity_bytes(0)

    assert capacity is not None
    assert abs(capacity - (40 << 20) + TILE_BYTES) < 16 << 20  # this process goes on meanwhile


def test_a_budget_without_room_for_a_layer_is_refused_with_the_numbers() -> None:
    Budget(1 << 40, [16 << 20] * 8, 1 << 30).check()
    with pytest.raises(
        MemoryBudgetError,
        match=r"interpreter takes, 16 for a layer and 16 for a part of the head, found 20 MiB",
    ):
        Budget(20 << 20, [16 << 20] * 8, 1 << 30).check()
