# SPDX-License-Identifier: Apache-2.0
"""The gate of CRIU, a FIFO; the zygote's is a real process's in tests/contract/test_engines.py."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from quickthaw.snapshot import gate
from quickthaw.snapshot.errors import BootstrapError
from tests.contract.fronts import wait_until

WAIT = """
import os, sys
from quickthaw.snapshot import gate, marks
marks.mark("init")
gate.wait("fifo:" + sys.argv[1])
print(sorted(os.environ.items()), [name for name, _ in marks.marks()], marks.start_kind())
print("error", file=sys.stderr)
"""
EXPECTED = "[('A', 'new'), ('OPENBLAS_NUM_THREADS', '1')] ['restore'] criu\n"


def is_waiting(fifo: Path) -> bool:
    """Ask as an engine does; the process waits again."""
    try:
        os.close(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))
    except OSError:
        return False
    return True


@pytest.mark.parametrize("has_output", [True, False])
def test_a_process_leaves_with_the_environment_and_output_that_it_is_given(
    tmp_path: Path, has_output: bool
) -> None:
    fifo, output = tmp_path / "gate", tmp_path / "output"
    os.mkfifo(fifo)
    output.touch()
    command = [sys.executable, "-c", WAIT, str(fifo)]
    environ = {**os.environ, "OLD": "1"}
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        wait_until(lambda: is_waiting(fifo))
        document = {
            "environ": {"A": "new", "QUICKTHAW_RESTORE_GATE": "x"},
            "output": str(output) if has_output else None,
        }
        fifo.write_text(json.dumps(document))
        printed = process.communicate(timeout=60)[0].decode()
    assert (output.read_text() if has_output else printed) == EXPECTED + "error\n"
    assert has_output == (printed == "")


@pytest.mark.parametrize("text", ["", "fd:", "fifo:", "file:/x"])
def test_a_gate_of_another_kind(text: str) -> None:
    with pytest.raises(BootstrapError, match="expected fd:N,M or fifo:PATH"):
        gate.wait(text)
