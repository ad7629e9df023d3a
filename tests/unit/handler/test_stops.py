# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quickthaw.handler.stops import StopStrings

text = st.text(alphabet="ab€", max_size=12)
stops = st.lists(st.text(alphabet="ab€", min_size=1, max_size=4), max_size=4)


def naive(whole: str, stops: Sequence[str]) -> str:
    """Read one character at a time; as soon as a stop string stands at the end, cut the longest such off."""
    for end in range(1, len(whole) + 1):
        ending = [stop for stop in stops if whole[:end].endswith(stop)]
        if ending:
            return whole[: end - max(map(len, ending))]
    return whole


@given(st.lists(text, max_size=8), stops)
def test_the_pieces_shown_are_the_text_before_the_first_stop(pieces: list[str], stops: list[str]) -> None:
    shown = StopStrings(stops)
    out = [shown.push(piece) for piece in pieces]
    out.append(shown.finish())
    whole = "".join(pieces)
    assert "".join(out) == naive(whole, stops)
    assert shown.is_over == any(stop in whole for stop in stops)


@given(st.lists(text, min_size=1, max_size=8), stops)
def test_no_more_is_held_back_than_could_begin_a_stop(pieces: list[str], stops: list[str]) -> None:
    shown = StopStrings(stops)
    out = "".join([shown.push(piece) for piece in pieces])
    held = "".join(pieces)[len(out) :]
    if not shown.is_over and held:
        assert any(stop.startswith(held) for stop in stops)


@pytest.mark.parametrize(("pieces", "expected"), [(["a", "b"], ["a", "b"]), (["", ""], ["", ""])])
def test_without_stop_strings_nothing_is_held(pieces: list[str], expected: list[str]) -> None:
    shown = StopStrings(())
    assert [shown.push(piece) for piece in pieces] == expected
    assert shown.finish() == ""
