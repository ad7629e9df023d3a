# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from typing import Any

import pytest

from quickthaw.layers.errors import CheckpointError
from quickthaw.layers.record import Record


def record(**values: Any) -> Record:
    return Record(values, "some/file.json", CheckpointError)


def test_what_is_there_is_read() -> None:
    found = record(
        text="a", flag=False, integer=-7, number=7, float=0.5, integers=[1, 2], numbers=[1, 0.5], items=[None]
    )

    assert (found.text("text"), found.flag("flag"), found.integer("integer")) == ("a", False, -7)
    assert (found.number("number"), found.number("float")) == (7.0, 0.5)
    assert (found.integers("integers"), found.numbers("numbers")) == ((1, 2), (1.0, 0.5))
    assert found.items("items") == [None]


def test_objects_are_records() -> None:
    found = record(child={"a": 1}, children=[{"a": 2}, {"a": 3}])

    assert found.child("child").integer("a") == 1
    assert [child.integer("a") for child in found.children("children")] == [2, 3]
    assert [(name, entry.integer("a")) for name, entry in record(x={"a": 4}).entries()] == [("x", 4)]


def test_null_is_not_there() -> None:
    assert "a" in record(a=0)
    assert "a" not in record(a=None)
    assert "a" not in record()


@pytest.mark.parametrize(
    ("method", "values"),
    [
        ("text", [1, None, ["a"]]),
        ("flag", [0, 1, "true", None]),
        ("integer", [1.0, True, "1", None, 2**53, -(10**400)]),
        ("number", [True, "1", float("inf"), float("nan"), 10**400, None]),
        ("integers", [1, [1.0], [[1]], [None], "12", [True]]),
        ("numbers", [1.0, ["1"], [float("nan")], [10**400]]),
        ("items", [{}, "ab", 1, None]),
        ("sha256", ["", "0" * 63, 1]),
        ("child", [[], "ab", 1, None]),
        ("children", [{}, [1], [[]], [None]]),
    ],
)
def test_what_is_something_else_is_named_with_its_file(method: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(CheckpointError, match=r"^unusable outer\.field.*: some/file\.json: expected"):
            getattr(record(outer={"field": value}).child("outer"), method)("field")
    with pytest.raises(CheckpointError, match=r"^unusable field"):
        getattr(record(), method)("field")


def test_a_record_may_have_to_be_complete() -> None:
    assert record(a=1, b=None).exactly({"a", "b"}).integer("a") == 1
    with pytest.raises(CheckpointError, match=r"unusable b: .*: expected a value, found nothing"):
        record(a=1).exactly({"a", "b"})
    with pytest.raises(CheckpointError, match=r"unusable c: .*expected no such field, found 3"):
        record(a=1, c=3).exactly({"a"})


def test_what_is_no_object_is_refused() -> None:
    with pytest.raises(CheckpointError, match=r"unusable content: file: expected an object, found \[\]"):
        Record([], "file", CheckpointError)


def test_what_is_shown_is_short() -> None:
    deep = json.loads("[" * 900 + "]" * 900)
    for value in ("a" * 10_000, 10**5000, deep):
        with pytest.raises(CheckpointError) as caught:
            record(a=value).flag("a")
        assert len(str(caught.value)) < 200
