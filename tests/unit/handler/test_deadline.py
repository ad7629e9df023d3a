# SPDX-License-Identifier: Apache-2.0
import pytest

from quickthaw.handler.deadline import Deadline
from quickthaw.handler.errors import OutOfTimeError


class Clock:
    now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


def token(deadline: Deadline, clock: Clock, took_ns: int) -> bool:
    if not deadline.begin_token():
        return False
    clock.now_ns += took_ns
    deadline.end_token()
    return True


def test_a_token_is_begun_while_the_slowest_and_the_margin_still_fit() -> None:
    clock = Clock()
    deadline = Deadline(1000, 100, clock)
    assert token(deadline, clock, 500)  # the prompt
    # 500: a second one like the first would end at 1000, and the margin is gone
    assert not deadline.begin_token()
    clock.now_ns = 300
    assert token(deadline, clock, 50)  # 350: now a token is known to take 50
    assert token(deadline, clock, 200)  # 550: or even 200
    assert token(deadline, clock, 50)  # 600
    clock.now_ns = 699
    assert deadline.begin_token()  # 699 + 200 + 100 is before 1000
    clock.now_ns = 700
    assert not deadline.begin_token()


def test_no_deadline_never_comes() -> None:
    clock = Clock()
    deadline = Deadline(None, 10**18, clock)
    assert all(token(deadline, clock, 10**15) for _ in range(5))


def test_the_first_token_needs_only_the_margin() -> None:
    assert Deadline(1000, 999, Clock()).begin_token()
    assert not Deadline(1000, 1000, Clock()).begin_token()


def test_a_token_is_given_up_before_a_layer_that_would_not_fit() -> None:
    clock = Clock()
    deadline = Deadline(1000, 100, clock)
    assert deadline.begin_token()
    deadline.begin_layer()
    clock.now_ns = 400
    deadline.begin_layer()  # 800 + 100 is before 1000
    clock.now_ns = 600
    deadline.begin_layer()  # this one took 200, and it is the last that counts
    clock.now_ns = 750
    with pytest.raises(OutOfTimeError):
        deadline.begin_layer()


def test_a_tokens_first_layer_is_not_measured_by_what_came_before_the_token() -> None:
    clock = Clock()
    deadline = Deadline(1000, 100, clock)
    assert deadline.begin_token()
    deadline.begin_layer()
    clock.now_ns = 600
    assert deadline.begin_token()
    deadline.begin_layer()


def test_without_a_deadline_a_layer_may_take_forever() -> None:
    clock = Clock()
    deadline = Deadline(None, 0, clock)
    assert deadline.begin_token()
    clock.now_ns = 10**18
    deadline.begin_layer()
