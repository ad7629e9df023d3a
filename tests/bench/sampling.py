# SPDX-License-Identifier: Apache-2.0
"""How a duration is measured: fresh processes, interleaved round by round, so that noise meets all alike."""

import json
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

# They slow a current numpy several times; on a machine that sets them, the measured process runs without.
_HIDDEN = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")

Samples = dict[str, list[float]]


def environment(**changes: str) -> dict[str, str]:
    """The environment of a measured process."""
    return {name: value for name, value in os.environ.items() if name not in _HIDDEN} | changes


def wall_ms(argv: list[str]) -> float:
    """From starting a process to its end."""
    start_ns = time.monotonic_ns()
    subprocess.run(argv, check=True, env=environment(), stdout=subprocess.DEVNULL)
    return (time.monotonic_ns() - start_ns) / 1e6


def first_line_ms(argv: list[str]) -> float:
    """From starting a process to the first line it prints."""
    start_ns = time.monotonic_ns()
    with subprocess.Popen(
        argv, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        elapsed_ms = (time.monotonic_ns() - start_ns) / 1e6
        process.stdout.read()
    if not line or process.returncode:
        raise SystemExit(f"{' '.join(argv)}: no line, or exit status {process.returncode}")
    return elapsed_ms


def interleave(measures: Mapping[str, Callable[[], float]], n_rounds: int) -> Samples:
    """Each measure once a round; one round before them warms the page cache and does not count."""
    samples: Samples = {name: [] for name in measures}
    for round_number in range(n_rounds + 1):
        for name, measure in measures.items():
            value = measure()
            if round_number:
                samples[name].append(value)
    return samples


def table(samples: Samples, baseline: str, unit: str = "ms") -> str:
    """A Markdown table: median, p90, and the median as a multiple of the baseline's."""
    base = statistics.median(samples[baseline])
    lines = [
        f"| | n | median {unit} | p90 {unit} | × {baseline} |",
        "|---|---|---|---|---|",
        *(
            f"| {name} | {len(values)} | {statistics.median(values):.1f} "
            f"| {statistics.quantiles(values, n=10)[-1]:.1f} | {statistics.median(values) / base:.2f} |"
            for name, values in samples.items()
        ),
    ]
    return "\n".join(lines)


def save(name: str, samples: Samples, **parameters: Any) -> Path:
    """Every sample, with what machine it was and what was measured."""
    path = Path(__file__).parent / "results" / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    record = {"machine": _machine(), "parameters": parameters, "samples": samples}
    path.write_text(json.dumps(record, indent=1) + "\n")
    return path


def _machine() -> dict[str, Any]:
    return {
        "processor": _processor(),
        "n_cpus": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()
