# SPDX-License-Identifier: Apache-2.0
import time

import pytest

from quickthaw.layers.spans import Spans


def test_a_span_lies_between_its_ends() -> None:
    spans = Spans()
    before_ns = time.monotonic_ns()
    with spans.timed("work", size_bytes=7):
        inside_ns = time.monotonic_ns()
    after_ns = time.monotonic_ns()
    [span] = spans.take()
    assert (span.name, span.size_bytes) == ("work", 7)
    assert before_ns <= span.start_ns <= inside_ns <= span.end_ns <= after_ns


def test_spans_are_handed_over_once() -> None:
    spans = Spans()
    with spans.timed("outer"), spans.timed("inner"):
        pass
    assert [span.name for span in spans.take()] == ["inner", "outer"]
    assert spans.take() == []


def test_what_fails_leaves_no_span() -> None:
    spans = Spans()
    with pytest.raises(ValueError, match="no"), spans.timed("work"):
        raise ValueError("no")
    assert spans.take() == []
