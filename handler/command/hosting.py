# SPDX-License-Identifier: Apache-2.0
"""`quickthaw host`: one function behind an HTTP address, until it is interrupted."""

import threading
from collections.abc import Callable, Mapping
from functools import partial
from itertools import count

from quickthaw.snapshot.engines.cold import ColdEngine
from quickthaw.snapshot.host.front import Front
from quickthaw.snapshot.host.instance import Instance
from quickthaw.snapshot.host.pool import Pool


def serve(
    handler: str,
    environ: Mapping[str, str],
    port: int,
    timeout_s: float,
    say: Callable[[str], object],
    on_log: Callable[[str], object],
) -> None:
    """Host `handler`; returns only by an interrupt, and then the function has ended.

    `say` gets the address, and a line for each start; `on_log` what the function prints.
    Raises: FunctionError when the function does not start; HostError.
    """
    numbers = count(1)

    def report(instance: Instance, ready_ns: int) -> None:
        ready_ms = (ready_ns - instance.spawned_ns) / 1e6
        say(f"start {next(numbers)}: cold, ready after {ready_ms:.1f} ms, process {instance.pid}")

    spawn = partial(Instance, ColdEngine(handler), environ, on_log)
    with Pool(spawn, timeout_s, report) as pool, Front(pool, port) as front:
        say(f"{handler} on {front.url}")
        pool.start()  # so that what cannot start says so now
        threading.Event().wait()
