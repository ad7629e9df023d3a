# SPDX-License-Identifier: Apache-2.0
"""The captured process of the zygote engine: it gives its host a fork of itself for each message.

    host → zygote    "start", and three descriptors: a memfd with the clone's environment as JSON, its output,
                     its lifeline
    zygote → clone   the same, if it was forked ahead
    zygote → host    "captured", once
                     "started PID", and a pidfd of the clone
                     "failed REASON": there is no clone
                     "ended PID STATUS", the status as subprocess has it

Messages are packets of Unix sockets (SOCK_SEQPACKET). When the host has been quiet for a while, the next
clone is forked ahead: it fills its page tables, and is nobody's until its message comes. A clone that
outlives the zygote is waited for by whoever inherits it; the host sees by the pidfd that it has ended.

Source: unix(7), pidfd_open(2).
"""

import array  # noqa: F401 - socket asks for it when it passes descriptors, and must not find the user's
import json
import os
import select
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress

from quickthaw.snapshot import config, connections, gate, page_tables
from quickthaw.snapshot.errors import CaptureRefusedError

_THREAD_END_WAIT_S = 0.5
_QUIET_MS = 500  # a fork ahead is to take no time of the first answer after a start
_PAUSE_S = 0.002  # and what it does then, little of later ones
_START = b"start"
_N_BELONGINGS = 3


def wait(control: int, lifeline: int) -> None:
    """Serve the host until it is gone; return in each clone. `lifeline` is the captured process's own.

    Raises: CaptureRefusedError when the process has threads, which a fork would not take along.
    """
    refuse_threads()
    shared = connections.find()
    pages = page_tables.of_files()
    with socket.socket(fileno=control) as host:
        host.send(b"captured")
        # Until here its output was that of the start that made it; from here on each clone has its own.
        gate.send_output_to(os.open(os.devnull, os.O_WRONLY))
        try:
            clone = _Zygote(host).serve()
        except ConnectionError:
            os._exit(0)  # the host is gone
    os.close(lifeline)
    os.setpgid(0, 0)  # as a process that was spawned
    for connection in shared:
        connections.drop(connection)
    if clone.is_ahead:
        page_tables.fill(pages, clone.has_start)
    gate.send_output_to(clone.take_start())


def refuse_threads() -> None:
    """Raises: CaptureRefusedError naming every thread beside the main one.

    Allowed are those that their library ends before each fork: OpenBLAS's, our interpreter's.
    """
    _fork_for_nothing()
    others = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
    others = others or _native_threads()
    if others:
        raise CaptureRefusedError(others)


def _fork_for_nothing() -> None:
    """Let libraries do what they do before a fork."""
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def _native_threads() -> list[str]:
    """What the kernel calls this process's other threads, without those that are just ending."""
    deadline = time.monotonic() + _THREAD_END_WAIT_S
    while True:
        names = []
        for task in os.listdir("/proc/self/task"):
            if int(task) != os.getpid():
                try:
                    with open(f"/proc/self/task/{task}/comm") as file:
                        names.append(f"{file.read().strip()} (native)")
                except OSError:  # it has ended
                    pass
        if not names or time.monotonic() > deadline:
            return names
        time.sleep(0.001)


class _Fork:
    """A clone, as the zygote has it, and as it has itself: there `pid` is 0, as fork(2) says it."""

    def __init__(self, belongings: Sequence[int] = ()) -> None:
        """For a start that has come with `belongings`; without, ahead of it. Raises: OSError."""
        self.is_ahead = not belongings
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self.pid = os.fork()
        except OSError:
            ours.close()
            its.close()
            raise
        self._channel, other = (ours, its) if self.pid else (its, ours)
        other.close()
        self._belongings = [os.dup(number) for number in belongings] if self.pid == 0 else []
        # Before anybody waits for it: the number is certain to be this clone's.
        self.pidfd = os.pidfd_open(self.pid) if self.pid else -1

    def start(self, belongings: list[int]) -> None:
        """In the zygote: make it a process of its own. Raises: OSError when it has ended."""
        with self._channel:
            if self.is_ahead:
                socket.send_fds(self._channel, [_START], belongings)

    def has_start(self) -> bool:
        """In the clone: whether there is one to be taken; it looks for a moment, in which others compute."""
        return bool(select.select([self._channel], (), (), _PAUSE_S)[0])

    def take_start(self) -> int:
        """In the clone: wait for it, take the environment, and return the output.

        The lifeline stays open while it lives. Without a start it ends with the zygote.
        """
        with self._channel:
            belongings = self._belongings or _receive(self._channel)
        if not belongings:
            os._exit(0)
        environ, output, _ = belongings
        config.replace_environment(_read_document(environ))
        return output


class _Zygote:
    """The captured process, as it serves its host."""

    def __init__(self, host: socket.socket) -> None:
        self._host = host
        self._clones: dict[int, int] = {}  # pidfd → pid
        self._next: _Fork | None = None  # it gets the next start
        self._poller = select.poll()
        self._poller.register(host, select.POLLIN)

    def serve(self) -> _Fork:
        """Fork until the host is gone; return in each clone. Raises: ConnectionError."""
        while True:
            events = self._poller.poll(_QUIET_MS if self._next is None else None)
            if not events:
                with suppress(OSError):  # the next start tries again, and says why
                    self._fork()
            elif (descriptor := events[-1][0]) == self._host.fileno():
                self._start()
            else:
                self._see_end(descriptor)
            if self._next is not None and self._next.pid == 0:
                return self._next

    def _fork(self, belongings: Sequence[int] = ()) -> _Fork:
        self._next = clone = _Fork(belongings)
        if clone.pid:
            self._clones[clone.pidfd] = clone.pid
            self._poller.register(clone.pidfd, select.POLLIN)
        else:
            for pidfd in self._clones:
                os.close(pidfd)
        return clone

    def _start(self) -> None:
        belongings = _receive(self._host)
        if not belongings:
            raise ConnectionError
        try:
            clone = self._next or self._fork(belongings)
            if clone.pid:
                clone.start(belongings)
                self._next = None  # if it has ended instead, `_see_end` takes it for what it is
                socket.send_fds(self._host, [f"started {clone.pid}".encode()], [clone.pidfd])
        except OSError as exc:
            self._host.send(f"failed {exc}".encode())
        finally:
            for descriptor in belongings:
                os.close(descriptor)

    def _see_end(self, pidfd: int) -> None:
        self._poller.unregister(pidfd)
        os.close(pidfd)
        pid = self._clones.pop(pidfd)
        _, status = os.waitpid(pid, 0)
        if self._next is not None and self._next.pid == pid:
            self._next = None  # nobody has heard of it
        else:
            self._host.send(f"ended {pid} {os.waitstatus_to_exitcode(status)}".encode())


def _receive(channel: socket.socket) -> list[int]:
    """What comes with a start; nothing when the other side is gone."""
    _, belongings, _, _ = socket.recv_fds(channel, len(_START), _N_BELONGINGS, socket.MSG_CMSG_CLOEXEC)
    return belongings


def _read_document(descriptor: int) -> dict[str, str]:
    with open(descriptor, "rb") as file:
        file.seek(0)
        document: dict[str, str] = json.load(file)
    return document
