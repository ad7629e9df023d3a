# SPDX-License-Identifier: Apache-2.0
import subprocess
import sys

import pytest

from quickthaw.snapshot.host.lifeline import Lifeline

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux kills by a lifeline")
# It computes, and listens to nobody.
DEAF = """
import signal
for number in (signal.SIGIO, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
print("ready", flush=True)
while True:
    sum(range(10**6))
"""


def test_a_process_whose_lifeline_is_cut_is_killed() -> None:
    line = Lifeline()
    with subprocess.Popen(
        [sys.executable, "-c", DEAF], pass_fds=(line.process_end,), stdout=subprocess.PIPE
    ) as process:
        line.attach(process.pid)
        assert process.stdout is not None
        process.stdout.readline()
        line.cut()
        line.cut()

    assert process.returncode == -9
