# SPDX-License-Identifier: Apache-2.0
"""A function that CRIU has brought back, as the host holds it.

host ─▶ sh (1 in its namespace) ─▶ the function (2): signals mean to it what they mean anywhere, and
orphans have somebody who waits for them. When sh ends, the kernel ends whatever is left in the namespace.
"""

import os
import signal
import threading

_SIGNALLED = 128  # what a shell adds to the number of the signal that ended a process


class RestoredProcess:
    """Its namespace's first process is a child of ours."""

    def __init__(self, init_pid: int, spawned_ns: int) -> None:
        self.spawned_ns = spawned_ns
        self._pidfd = os.pidfd_open(init_pid)
        self._status: int | None = None
        self._lock = threading.Lock()
        self._pid = next(iter(children(init_pid)), init_pid)  # it may have ended again

    @property
    def pid(self) -> int:
        """The function's."""
        return self._pid

    def wait(self) -> int:
        """Block until it has ended, and whatever it has started with it."""
        os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED | os.WNOWAIT)
        with self._lock:
            if self._status is None:
                result = os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED)
                assert result is not None
                was_killed = result.si_code != os.CLD_EXITED
                self._status = -result.si_status if was_killed else as_subprocess_has_it(result.si_status)
                os.close(self._pidfd)
            return self._status

    def kill(self) -> None:
        """SIGKILL to all of its namespace, unless it has ended."""
        with self._lock:
            if self._status is None:
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)


def as_subprocess_has_it(status: int) -> int:
    """A shell's word for the signal that ended a process as a negative number."""
    number = status - _SIGNALLED
    return -number if number in set(signal.Signals) else status


def children(pid: int) -> list[int]:
    """The processes that a process of one thread has, the oldest first."""
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(child) for child in file.read().split()]
