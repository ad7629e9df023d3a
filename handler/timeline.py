# SPDX-License-Identifier: Apache-2.0
"""Where the time of a start, and of its first request, went.

A mark ends a phase that began at the mark before it, so phases follow each other without a gap: interpreter
start, imports, init, waiting for the event, and so on to the first token. A span lies anywhere, usually
inside a phase: one layer, one shard. The marks that the bootstrap made before this module was imported come
first. A restore begins a timeline of its own.
"""

from time import monotonic_ns
from typing import NamedTuple

from quickthaw.snapshot.marks import marks, start_kind


class Phase(NamedTuple):
    """A stretch of time on the monotonic clock, and how many bytes of files it read or mapped."""

    name: str
    start_ns: int
    end_ns: int
    size_bytes: int = 0


class Timeline:
    """The phases of one process up to now.

    `bytes_before` is what it had read of the shards when it was captured.
    """

    def __init__(self, bytes_before: int = 0) -> None:
        self.bytes_before = bytes_before
        self.start_kind = start_kind()  # what began it: "cold", or what restored the process
        self._begin_ns = monotonic_ns()
        self._marks: list[tuple[str, int, int]] = []  # name, end_ns, size_bytes
        self._spans: list[Phase] = []

    def mark(self, phase: str, size_bytes: int = 0, end_ns: int | None = None) -> None:
        """End `phase` now, or at a time that was stamped before."""
        self._marks.append((phase, end_ns or monotonic_ns(), size_bytes))

    def span(self, name: str, start_ns: int, end_ns: int, size_bytes: int = 0) -> None:
        """Add something that was timed elsewhere."""
        self._spans.append(Phase(name, start_ns, end_ns, size_bytes))

    def phases(self) -> list[Phase]:
        """Every phase and span in the order they began, a phase before the spans inside it.

        The first one made by the bootstrap has no length: what was before it, only the parent process
        knows.
        """
        bootstrap = [(name, end_ns, 0) for name, end_ns in marks()]
        ends = sorted([*bootstrap, *self._marks], key=lambda each: each[1])
        start_ns = min(self._begin_ns, *(end_ns for _, end_ns, _ in ends)) if ends else self._begin_ns
        phases = []
        for name, end_ns, size_bytes in ends:
            phases.append(Phase(name, start_ns, end_ns, size_bytes))
            start_ns = end_ns
        return sorted([*phases, *self._spans], key=lambda phase: phase.start_ns)

    def line(self, *, engine: str, bytes_read: int, trace_id: str | None = None) -> dict[str, object]:
        """Everything about this start, for one line of the log."""
        return {
            "quickthaw": "start",
            "start": self.start_kind,
            "phases": [phase._asdict() for phase in self.phases()],
            "bytes_read": bytes_read - self.bytes_before,
            "major_faults": major_faults(),
            "private_mib": private_mib(),
            "engine": engine,
            "trace_id": trace_id,
        }


def major_faults() -> int:
    """How often this process had to wait for a page to come from storage."""
    import resource  # here: the first token does not wait for it

    return resource.getrusage(resource.RUSAGE_SELF).ru_majflt


def private_mib(status: str = "/proc/self/status") -> float | None:
    """Resident memory of this process alone, in MiB: what is mapped from files is the page cache's.

    None where the kernel does not say (not Linux). Source: proc_pid_status(5), RssAnon.
    """
    try:
        with open(status) as file:
            lines = file.readlines()
    except OSError:
        return None
    kib = next((line.split()[1] for line in lines if line.startswith("RssAnon:")), None)
    return None if kib is None else round(int(kib) / 1024, 1)
