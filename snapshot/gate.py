# SPDX-License-Identifier: Apache-2.0
"""Where an initialised process waits until it is restored: what local engines put in SnapStart's place.

    fd:N,M     N is a socket; a clone is forked off for each message on it, which does not need the captured
               process's lifeline, M (forks.py)
    fifo:PATH  one JSON document on a FIFO: {"environ": {…}, "output": a path that is opened for stdout and
               stderr, or null}; its engine holds the other end, so that a clone can be given one of its own

A process leaves the gate with the environment and the output of its own. Closed at once and written
nothing, a FIFO makes it wait again: so an engine can ask whether somebody waits.
"""

import gc
import json
import os
import sys
from typing import Any

from quickthaw.snapshot import config
from quickthaw.snapshot.errors import BootstrapError
from quickthaw.snapshot.marks import restart


def wait(gate: str) -> None:
    """Returns in the restored process, and nowhere else.

    Raises: CaptureRefusedError, BootstrapError for a gate of a kind that there is not.
    """
    kind, _, place = gate.partition(":")
    if kind not in ("fd", "fifo") or not place:
        raise BootstrapError(f"{config.RESTORE_GATE} is {gate!r}, expected fd:N,M or fifo:PATH")
    # What init made stays: no collection need look at it again, or write to pages that clones share.
    gc.collect()
    gc.freeze()
    if kind == "fd":
        from quickthaw.snapshot import forks

        control, _, lifeline = place.partition(",")
        forks.wait(int(control), int(lifeline))
        restart("zygote")
    else:
        from quickthaw.snapshot import connections

        for connection in connections.find():  # not every kernel lets them be dumped
            connections.drop(connection)
        document = _read_document(place)
        restart("criu")
        config.replace_environment(document["environ"])
        if document.get("output") is not None:
            send_output_to(os.open(document["output"], os.O_WRONLY))


def send_output_to(descriptor: int) -> None:
    """Let `descriptor` be stdout and stderr, and close it."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    for number in (1, 2):
        os.dup2(descriptor, number)
    os.close(descriptor)


def _read_document(path: str) -> Any:
    while True:
        with open(path, "rb") as fifo:
            data = fifo.read()
        if data:
            return json.loads(data)
