# SPDX-License-Identifier: Apache-2.0
"""Connections that a captured process holds: in a restored one it is as if their peers had gone.

No two clones can use one connection; AWS's snapshots do not keep them either.
"""

import os
import socket
import stat


def find() -> list[int]:
    """The descriptors of this process that are connected over TCP or UDP."""
    return [number for number in map(int, os.listdir("/proc/self/fd")) if _is_connection(number)]


def drop(connection: int) -> None:
    """The number stays taken, so that whoever holds it finds the end of a stream, and not another file."""
    ours, peer = socket.socketpair()
    peer.close()
    with ours:
        os.dup2(ours.fileno(), connection, inheritable=False)


def _is_connection(descriptor: int) -> bool:
    try:
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            return False
    except OSError:  # what the folder itself was listed with
        return False
    with socket.socket(fileno=os.dup(descriptor)) as duplicate:
        if duplicate.family not in (socket.AF_INET, socket.AF_INET6):
            return False
        try:
            duplicate.getpeername()
        except OSError:
            return False
        return True
