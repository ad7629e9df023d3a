# SPDX-License-Identifier: Apache-2.0
from quickthaw.handler.deadline import Deadline


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
