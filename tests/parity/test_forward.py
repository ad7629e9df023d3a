# SPDX-License-Identifier: Apache-2.0
"""The interpreter answers what transformers answers here and now, and so does the golden file."""

from pathlib import Path

import pytest

from tests import greedy
from tests.greedy import Case
from tests.parity import reference


@pytest.mark.parametrize("case", greedy.CASES, ids=lambda case: case.name)
def test_tiny_checkpoint(case: Case, tmp_path: Path) -> None:
    source = greedy.checkpoint(tmp_path / "source", case)
    expected = reference.of_case(source, case)
    greedy.assert_same(greedy.interpret(source, tmp_path / "out", case), expected)
    greedy.assert_same(greedy.read_golden()[case.name], expected)


def test_smollm2(smollm2_shards: Path) -> None:
    expected = reference.of_smollm2()
    greedy.assert_same(greedy.continuation(smollm2_shards, greedy.SMOLLM2_PROMPT), expected)
    greedy.assert_same(greedy.read_golden()[greedy.SMOLLM2], expected)
