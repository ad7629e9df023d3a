# SPDX-License-Identifier: Apache-2.0
import gc
import os
import threading

import pytest

from quickthaw.layers.crew import Crew, Piece, even_pieces, pieces


def test_pieces_cover_everything_once() -> None:
    assert pieces(10, 4) == [(0, 4), (4, 8), (8, 10)]
    assert pieces(3, 100) == [(0, 3)]


@pytest.mark.parametrize("n_lanes", [1, 2, 3])
@pytest.mark.parametrize(("n_items", "at_most"), [(1, 1), (7, 2), (960, 455), (576, 455), (12, 1000)])
def test_even_pieces_are_no_larger_and_as_many_for_each_lane(
    n_lanes: int, n_items: int, at_most: int
) -> None:
    found = even_pieces(n_items, at_most, n_lanes)
    assert [item for piece in found for item in range(*piece)] == list(range(n_items))
    sizes = [end - begin for begin, end in found]
    assert max(sizes) <= at_most
    assert len(set(sizes[:-1])) <= 1
    assert len(found) % n_lanes == 0 or n_items < 100  # of few items some pieces remain over


@pytest.mark.parametrize("n_lanes", [1, 2, 5])
def test_every_piece_is_worked_once(n_lanes: int) -> None:
    crew, done = Crew(n_lanes), []
    for _ in range(50):
        crew.run(lambda _lane, piece: done.append(piece), pieces(7, 1))
    assert sorted(done) == sorted(pieces(7, 1) * 50)
    crew.release()


def test_lanes_work_at_the_same_time() -> None:
    crew, meeting = Crew(2), threading.Barrier(2, timeout=30)
    lanes = []

    def work(lane: int, _piece: Piece) -> None:
        meeting.wait()  # passes only when two pieces are being worked at once
        lanes.append(lane)

    crew.run(work, pieces(2, 1))
    assert sorted(lanes) == [0, 1]
    crew.release()


def test_no_thread_before_the_first_job_nor_after_release() -> None:
    before = threading.active_count()
    crew = Crew(3)
    crew.run(lambda _lane, _piece: None, pieces(1, 1))
    assert threading.active_count() == before
    crew.run(lambda _lane, _piece: None, pieces(8, 1))
    assert threading.active_count() == before + 2
    crew.release()
    assert threading.active_count() == before
    crew.run(lambda _lane, _piece: None, pieces(8, 1))
    crew.release()


@pytest.mark.parametrize("bad_lane", [0, 1])
def test_an_error_of_any_lane_is_raised_and_the_crew_goes_on(bad_lane: int) -> None:
    crew, meeting = Crew(2), threading.Barrier(2, timeout=30)

    def work(lane: int, _piece: Piece) -> None:
        meeting.wait()
        if lane == bad_lane:
            raise ValueError(f"lane {lane}")

    with pytest.raises(ValueError, match=f"lane {bad_lane}"):
        crew.run(work, pieces(2, 1))
    done: list[Piece] = []
    crew.run(lambda _lane, piece: done.append(piece), pieces(4, 1))
    assert len(done) == 4
    crew.release()


def lanes() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("quickthaw-lane")}


def test_lanes_end_before_a_fork_and_come_back_after_it() -> None:
    others, crew, done = lanes(), Crew(3), []
    crew.run(lambda _lane, piece: done.append(piece), pieces(7, 1))
    assert len(lanes() - others) == 2
    pid = os.fork()
    if pid == 0:  # a child in which nothing may go on: it says by its status what it saw
        crew.run(lambda _lane, piece: done.append(piece), pieces(7, 1))
        os._exit(len(done))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 14
    assert not lanes() - others
    crew.run(lambda _lane, piece: done.append(piece), pieces(7, 1))
    assert len(done) == 14
    crew.release()


def test_lanes_end_with_their_crew() -> None:
    others, crew = lanes(), Crew(3)
    crew.run(lambda _lane, _piece: None, pieces(7, 1))
    left = lanes() - others
    del crew
    gc.collect()
    for lane in left:
        lane.join(timeout=30)
    assert len(left) == 2
    assert not lanes() - others


# From 3.12 on Python warns of a fork beside threads; here there is to be one.
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_fork_in_the_middle_of_a_job_leaves_it_alone() -> None:
    crew, meeting = Crew(2), threading.Barrier(2, timeout=30)

    def work(lane: int, _piece: Piece) -> None:
        meeting.wait()
        if lane == 0:
            pid = os.fork()
            if pid == 0:
                os._exit(0)
            os.waitpid(pid, 0)
        meeting.wait()

    crew.run(work, pieces(2, 1))
    crew.release()
