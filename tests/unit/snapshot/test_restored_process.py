# SPDX-License-Identifier: Apache-2.0
import subprocess
import sys

import pytest

from quickthaw.snapshot.engines.restored_process import as_subprocess_has_it


@pytest.mark.parametrize("status", [0, 1, 7, 127, 128, 200, 255])
def test_an_exit_status_stays_one(status: int) -> None:
    assert as_subprocess_has_it(status) == status


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no signals")
@pytest.mark.parametrize("number", [6, 9, 11, 15])
def test_a_signal_is_what_the_shell_meant(number: int) -> None:
    status = subprocess.call(
        ["sh", "-c", f"(exec sh -c 'kill -{number} $$'); exit $?"], stderr=subprocess.DEVNULL
    )
    assert as_subprocess_has_it(status) == -number
