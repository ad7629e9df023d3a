# SPDX-License-Identifier: Apache-2.0
"""The interpreter answers what transformers answered once; this needs no torch."""

from pathlib import Path

import pytest

from tests import greedy
from tests.greedy import Case


@pytest.mark.parametrize("case", greedy.CASES, ids=lambda case: case.name)
def test_tiny_checkpoint(case: Case, tmp_path: Path) -> None:
    source = greedy.checkpoint(tmp_path / "source", case)
    greedy.assert_same(greedy.interpret(source, tmp_path / "out", case), greedy.read_golden()[case.name])


def test_smollm2(smollm2_shards: Path) -> None:
    found = greedy.continuation(smollm2_shards, greedy.SMOLLM2_PROMPT)
    greedy.assert_same(found, greedy.read_golden()[greedy.SMOLLM2])
