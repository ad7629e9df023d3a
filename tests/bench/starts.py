# SPDX-License-Identifier: Apache-2.0
"""What a start costs, by engine: `make bench-starts`. Cold, zygote and CRIU start three functions:

    ours     SmolLM2-135M; the first token of a chat whose user turn is another one each time
    torch    one that imports torch
    empty    one that does nothing

`ready` is from asking for a process to its asking for an event, `first` from sending the first event to the
first byte of the answer, `warm` the same of the second event to the same process. A table of the phases
follows the samples, and anonymous PSS of eight instances that import torch.
"""

import argparse
import json
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from quickthaw.layers.checkpoints.split import split
from quickthaw.snapshot.engines.cold import ColdEngine
from quickthaw.snapshot.engines.criu import CriuEngine
from quickthaw.snapshot.engines.engine import Engine
from quickthaw.snapshot.engines.zygote import ZygoteEngine
from quickthaw.snapshot.host.instance import Instance
from tests.bench import sampling

CACHE = Path(__file__).parent / ".cache"
FUNCTIONS = str(Path(__file__).parent / "functions")
HANDLERS = {
    "ours": "quickthaw.handler.app.lambda_handler",
    "torch": "torch_user.handle",
    "empty": "empty.handle",
}
TIMEOUT_S = 60.0
N_INSTANCES = 8
SYSTEM_PROMPT = " ".join(
    f"Rule {number}: answer in one short and friendly sentence." for number in range(1, 18)
)
SHORT_SYSTEM_PROMPT = "Be kind to people."
WORDS = ("river", "cloud", "stone", "garden", "window", "yellow", "seven", "music", "paper", "winter")

Started = tuple[float, float, float]  # ready, first, warm


def event(system: str | None = None) -> bytes:
    """A chat with a user turn that no snapshot can have seen."""
    question = "Tell me about " + " ".join(random.choices(WORDS, k=6))
    messages = [{"role": "user", "content": question}]
    if system is not None:
        messages.insert(0, {"role": "system", "content": system})
    return json.dumps({"messages": messages, "max_tokens": 1, "stream": True}).encode()


def first_byte_ms(instance: Instance, data: bytes) -> float:
    """From sending an event to the first byte of its answer."""
    begin_ns = time.monotonic_ns()
    chunks = instance.invoke(data, TIMEOUT_S)
    arrival_ns = next(iter(chunks)).arrival_ns
    for _ in chunks:
        pass
    return (arrival_ns - begin_ns) / 1e6


def _unheard(line: str) -> None:
    del line


def start(engine: Engine, environ: Mapping[str, str], make_event: Callable[[], bytes]) -> Started:
    """One start, its first event and its second."""
    with Instance(engine, environ, _unheard) as instance:
        ready_ms = (instance.wait_ready(TIMEOUT_S) - instance.spawned_ns) / 1e6
        return ready_ms, first_byte_ms(instance, make_event()), first_byte_ms(instance, make_event())


def anonymous_pss_mib(engine: Engine, environ: Mapping[str, str], n_instances: int) -> float:
    """What `n_instances` add to the machine's memory after one event each; the captured process is in it."""
    with ExitStack() as stack:
        instances = [stack.enter_context(Instance(engine, environ, _unheard)) for _ in range(n_instances)]
        for instance in instances:
            instance.wait_ready(TIMEOUT_S)
            first_byte_ms(instance, event())
        pids = [instance.pid for instance in instances]
        captured = getattr(engine, "pid", None)
        return sum(map(_pss_anon_kib, [*pids, *([captured] if captured else [])])) / 1024


def _pss_anon_kib(pid: int) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss_Anon:"):
            return int(line.split()[1])
    raise SystemExit(f"no Pss_Anon of process {pid}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--engines", default="cold,zygote,criu")
    arguments = parser.parse_args()
    names = arguments.engines.split(",")
    CACHE.mkdir(exist_ok=True)
    shards = split("smollm2", CACHE / "smollm2-f32", dtype="f32").out
    environ = sampling.environment(QUICKTHAW_SHARDS=str(shards))
    work = Path(tempfile.mkdtemp(prefix="quickthaw-bench-"))
    samples: sampling.Samples = {}
    memory: sampling.Samples = {}
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, work)
        measures: dict[str, Callable[[], Started]] = {}
        for function, handler in HANDLERS.items():
            for name in names:
                engine = stack.enter_context(make_engine(name, handler, work / function))
                measures[f"{function}, {name}"] = partial(start, engine, environ, event)
        for system, length in ((SYSTEM_PROMPT, 200), (SHORT_SYSTEM_PROMPT, 5)):
            captured = work / f"system-{length}.json"
            captured.write_bytes(event(system))
            engine = stack.enter_context(make_engine("zygote", HANDLERS["ours"], work / str(length)))
            with_event = {**environ, "QUICKTHAW_WARMUP_EVENT": str(captured)}
            name = f"ours, zygote that holds a system prompt of {length} tokens"
            measures[name] = partial(start, engine, with_event, partial(event, system))
        for number in range(arguments.rounds + 1):
            for measure_name, measure in measures.items():
                values = measure()
                if number:  # the first round captures, and warms the page cache
                    for step, value in zip(("ready", "first", "warm"), values, strict=True):
                        samples.setdefault(f"{measure_name}: {step}", []).append(value)
    for name in names:
        with make_engine(name, HANDLERS["torch"], work / "memory") as engine:
            one = anonymous_pss_mib(engine, environ, 1)
            memory[name] = [one, anonymous_pss_mib(engine, environ, N_INSTANCES)]
    print(table(samples))
    print(memory_table(memory))
    print(f"\nevery sample: {sampling.save('starts', samples, memory_mib=memory, rounds=arguments.rounds)}")


def make_engine(name: str, handler: str, directory: Path) -> Engine:
    if name == "cold":
        return ColdEngine(handler, FUNCTIONS)
    if name == "zygote":
        return ZygoteEngine(handler, FUNCTIONS)
    return CriuEngine(handler, directory / "criu", FUNCTIONS)


def table(samples: sampling.Samples) -> str:
    """One row for each function and engine, medians."""
    rows: dict[str, dict[str, float]] = {}
    for name, values in samples.items():
        row, _, step = name.rpartition(": ")
        rows.setdefault(row, {})[step] = statistics.median(values)
    lines = ["| median ms | ready | event → first byte | the same, warm |", "|---|---|---|---|"]
    lines += [f"| {row} | {v['ready']:.1f} | {v['first']:.1f} | {v['warm']:.1f} |" for row, v in rows.items()]
    return "\n".join(lines)


def memory_table(memory: sampling.Samples) -> str:
    """Anonymous memory, of one instance and of many."""
    lines = [
        f"\n| anonymous PSS, MiB, torch | 1 | {N_INSTANCES} | each beyond the first |",
        "|---|---|---|---|",
    ]
    for name, (one, many) in memory.items():
        lines.append(f"| {name} | {one:.0f} | {many:.0f} | {(many - one) / (N_INSTANCES - 1):.1f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
