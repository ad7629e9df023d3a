# SPDX-License-Identifier: Apache-2.0
"""What a function process prints, passed on line by line."""

import os
import select
import threading
from collections.abc import Callable

_READ_BYTES = 65_536  # what a pipe holds
_MAX_READS = 16  # at a time: one that never stops printing must not hold up who wants a look


class Output:
    """A pipe whose other end, `process_end`, is the process's to write to, and to be closed here.

    `on_line` is called on a thread, or on the one that calls `read_now`; never by two at once.
    """

    def __init__(self, on_line: Callable[[str], object]) -> None:
        self._on_line = on_line
        self._read_end, self.process_end = os.pipe()
        os.set_blocking(self._read_end, False)
        self._unfinished = b""
        self._is_open = True
        self._lock = threading.Lock()
        self._reader = threading.Thread(target=self._read, name="instance-output", daemon=True)
        self._reader.start()

    def read_now(self) -> None:
        """Pass on what has been printed by now: once a function has answered, all that it printed before."""
        with self._lock:
            for _ in range(_MAX_READS):
                if not self._is_open or not self._read_some():
                    return

    def join(self, timeout_s: float) -> None:
        """Wait until nobody holds the other end any more; a grandchild may, for long."""
        self._reader.join(timeout_s)

    def _read(self) -> None:
        poll = select.poll()
        poll.register(self._read_end, select.POLLIN)
        while self._is_open:
            poll.poll()
            self.read_now()

    def _read_some(self) -> bool:
        """Whether there may be more at once."""
        try:
            data = os.read(self._read_end, _READ_BYTES)
        except BlockingIOError:
            return False
        *lines, self._unfinished = (self._unfinished + data).split(b"\n")
        for line in lines:
            self._on_line(line.decode("utf-8", "replace") + "\n")
        if not data and self._unfinished:
            self._on_line(self._unfinished.decode("utf-8", "replace"))
        if not data:
            self._is_open = False
            os.close(self._read_end)
        return bool(data)
