# SPDX-License-Identifier: Apache-2.0
"""Ties a process to its host: when the host is gone, even by SIGKILL, the kernel kills the process.

Each holds one end of a pipe. The kernel closes the host's end with the host, and tells the owner of the
other one, by the signal that was chosen for it. The process runs nothing for that, so it may be in the
middle of a computation, and the host spends 17 µs. prctl(PR_SET_PDEATHSIG) would have to be called in the
process, by ctypes (2 ms), and kills when the host's thread ends that made the process.

Source: fcntl(2), F_SETOWN and F_SETSIG.
"""

import fcntl
import os
import signal
import sys
from contextlib import suppress
from io import FileIO


class Lifeline:
    """A pipe between this process and one that is to inherit `process_end`.

    Only Linux lets the signal be chosen. Elsewhere a process whose host was killed ends when it next asks for
    an event.
    """

    def __init__(self) -> None:
        self.process_end, host_end = os.pipe()
        self._host_end = FileIO(host_end, "wb")

    def attach(self, pid: int) -> None:
        """The process is there, and has inherited its end."""
        if sys.platform == "linux":
            fcntl.fcntl(self.process_end, fcntl.F_SETSIG, signal.SIGKILL)
            with suppress(ProcessLookupError):  # it has ended, and was not ours to wait for
                fcntl.fcntl(self.process_end, fcntl.F_SETOWN, pid)
            fcntl.fcntl(self.process_end, fcntl.F_SETFL, os.O_ASYNC)
        os.close(self.process_end)

    def abandon(self) -> None:
        """There is no process, after all."""
        os.close(self.process_end)

    def cut(self) -> None:
        """Kill the process, unless it has ended; more often than once does no harm."""
        self._host_end.close()
