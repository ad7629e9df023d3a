# SPDX-License-Identifier: Apache-2.0
"""The captured process of the zygote engine: it forks a clone of itself for each message of its host.

    host → zygote    "start", and three descriptors: a memfd with the clone's environment as JSON, its output,
                     its lifeline
    zygote → host    "captured", once
                     "started PID", and a pidfd of the clone
                     "failed REASON": there is no clone
                     "ended PID STATUS", the status as subprocess has it

Messages are packets of a Unix socket (SOCK_SEQPACKET). A clone that outlives the zygote is waited for by
whoever inherits it; the host sees by the pidfd that it has ended.

Source: unix(7), pidfd_open(2).
"""

import array  # noqa: F401 - socket asks for it when it passes descriptors, and must not find the user's
import json
import os
import select
import socket
import threading
import time

from quickthaw.snapshot import config, connections, gate
from quickthaw.snapshot.errors import CaptureRefusedError

_THREAD_END_WAIT_S = 0.5


def wait(control: int, lifeline: int) -> None:
    """Serve the host until it is gone; return in each clone. `lifeline` is the captured process's own.

    Raises: CaptureRefusedError when the process has threads, which a fork would not take along.
    """
    refuse_threads()
    shared = connections.find()
    with socket.socket(fileno=control) as host:
        host.send(b"captured")
        # Until here its output was that of the start that made it; from here on each clone has its own.
        gate.send_output_to(os.open(os.devnull, os.O_WRONLY))
        try:
            output = _serve(host)
        except ConnectionError:
            os._exit(0)  # the host is gone
    gate.send_output_to(output)
    os.close(lifeline)
    os.setpgid(0, 0)  # as a process that was spawned
    for connection in shared:
        connections.drop(connection)


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


def _serve(host: socket.socket) -> int:
    """Fork for each message; return in a clone, with its output. Its lifeline stays open while it lives."""
    clones: dict[int, int] = {}  # pidfd → pid
    poller = select.poll()
    poller.register(host, select.POLLIN)
    while True:
        for descriptor, _ in poller.poll():
            if descriptor != host.fileno():
                poller.unregister(descriptor)
                _report_end(host, clones.pop(descriptor), descriptor)
                continue
            _, belongings, _, _ = socket.recv_fds(host, 16, 3, socket.MSG_CMSG_CLOEXEC)
            if not belongings:
                raise ConnectionError
            environ, output, lifeline = belongings
            # Here rather than in the clone, where the first touch of each page costs a copy of it.
            config.replace_environment(_read_document(environ))
            try:
                pid = os.fork()
            except OSError as exc:
                host.send(f"failed {exc}".encode())
            else:
                if pid == 0:
                    for pidfd in clones:
                        os.close(pidfd)
                    return output
                # Before anybody waits for it: the number is certain to be this clone's.
                pidfd = os.pidfd_open(pid)
                clones[pidfd] = pid
                poller.register(pidfd, select.POLLIN)
                socket.send_fds(host, [f"started {pid}".encode()], [pidfd])
            os.close(output)
            os.close(lifeline)


def _read_document(descriptor: int) -> dict[str, str]:
    with open(descriptor, "rb") as file:
        file.seek(0)
        document: dict[str, str] = json.load(file)
    return document


def _report_end(host: socket.socket, pid: int, pidfd: int) -> None:
    _, status = os.waitpid(pid, 0)
    os.close(pidfd)
    host.send(f"ended {pid} {os.waitstatus_to_exitcode(status)}".encode())
