# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from quickthaw.layers.errors import StorageError, StorageTimeoutError
from quickthaw.layers.storage.s3.patience import Attempts, Patience

FAILURE = StorageError("S3 does not give an object", where="s3://models/x", found="503 SlowDown")
QUICK = Patience(pause_s=0.0)


def test_failures_in_a_row_end_it() -> None:
    attempts = Attempts(QUICK._replace(n_failures=3))
    attempts.wait(FAILURE, has_gained=False)
    attempts.wait(FAILURE, has_gained=False)

    with pytest.raises(StorageError) as caught:
        attempts.wait(FAILURE, has_gained=False)
    assert caught.value is FAILURE


def test_a_failure_after_some_bytes_is_a_first_one() -> None:
    attempts = Attempts(QUICK._replace(n_failures=2))
    for _ in range(10):
        attempts.wait(FAILURE, has_gained=True)


def test_time_ends_it_too() -> None:
    with pytest.raises(StorageTimeoutError, match=r"s3://models/x.*503 SlowDown"):
        Attempts(QUICK._replace(give_up_s=0.0)).wait(FAILURE, has_gained=True)
