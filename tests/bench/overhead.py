# SPDX-License-Identifier: Apache-2.0
"""What a request costs outside the model: before the first computation, between tokens, after the last one.

`make bench-overhead` runs the real function in a process that stamps when an event comes in, when the engine
begins and ends, when JSON is made and when bytes leave. The bars: before and after together at most 1 ms,
JSON at most 3 % of the time to generate 64 tokens. What is told of a request (log, metrics) comes when its
answer has left, and is the column `afterwards`.
"""

import argparse
import json
import os
import statistics
import tempfile
from pathlib import Path
from typing import Any

from quickthaw.layers.checkpoints.split import split
from tests.bench import sampling
from tests.contract.functions import Function, running

CACHE = Path(__file__).parent / ".cache"
N_TOKENS = 64
PROMPT = "The capital of France is"
CHAT = [{"role": "user", "content": "What is the capital of France?"}]

# The function as it is, with a stamp around each step. A stamp takes about 0.1 µs.
STAMPING = """
import time
from quickthaw.handler import app, stream
from quickthaw.layers.interpreter import Interpreter
from quickthaw.snapshot import afterwards
from quickthaw.snapshot.chunked import ChunkedPost
from quickthaw.snapshot.client import RuntimeClient

stamps = []

def stamped(owner, name):
    inner = getattr(owner, name)
    def outer(*arguments, **options):
        stamps.append((name, "begin", time.perf_counter_ns()))
        try:
            return inner(*arguments, **options)
        finally:
            stamps.append((name, "end", time.perf_counter_ns()))
    setattr(owner, name, outer)

stamped(Interpreter, "forward")
stamped(stream, "data")
stamped(ChunkedPost, "_send")
stamped(RuntimeClient, "wait_next_invocation")
stamped(afterwards, "run_deferred")
stamped(RuntimeClient, "post_invocation_result")

def handle(event, context):
    stamps.append(("handle", "begin", time.perf_counter_ns()))
    if event != "stamps":
        return app.lambda_handler(event, context)
    taken = list(stamps)
    stamps.clear()
    return taken
"""

Stamp = tuple[str, str, int]


def requests() -> dict[str, dict[str, Any]]:
    """What is asked, by its name in the table."""
    asked = {"max_tokens": N_TOKENS, "temperature": 0}
    streamed = {**asked, "stream": True}
    return {
        "completion": http("/v1/completions", {"prompt": PROMPT, **streamed}),
        "chat": http("/v1/chat/completions", {"messages": CHAT, **streamed}),
        "chat, whole": http("/v1/chat/completions", {"messages": CHAT, **asked}),
        "direct": {"prompt": PROMPT, **streamed},
    }


def http(path: str, body: object) -> dict[str, Any]:
    """An event as a function URL sends it."""
    return {
        "version": "2.0",
        "rawPath": path,
        "headers": {
            "content-type": "application/json",
            "x-amzn-trace-id": "Root=1-5759e988-bd862e3fe1be46a994272793",
        },
        "requestContext": {"http": {"method": "POST", "path": path}},
        "body": json.dumps(body),
    }


def measure(function: Function, event: dict[str, Any]) -> dict[str, float]:
    """One request. Units: ms, but for `json %`."""
    function.ask("stamps")
    function.ask(event)
    stamps: list[Stamp] = [tuple(stamp) for stamp in function.ask_json("stamps")]
    event_ns = _first(stamps, "wait_next_invocation", "end")
    begins, ends = _all(stamps, "forward", "begin"), _all(stamps, "forward", "end")
    # An answer in one piece is handed to awslambdaric's transport, which also waits for the Runtime API.
    sent = _all(stamps, "_send", "end") or _all(stamps, "post_invocation_result", "begin")
    json_ns = sum(_all(stamps, "data", "end")) - sum(_all(stamps, "data", "begin"))
    between_ns = [begin - end for end, begin in zip(ends, begins[1:], strict=False)]
    handled_ns = _first(stamps, "handle", "begin")
    return {
        "before": (begins[0] - event_ns) / 1e6,
        "of it awslambdaric": (handled_ns - event_ns) / 1e6,
        "after": (sent[-1] - ends[-1]) / 1e6,
        "before + after": (begins[0] - event_ns + sent[-1] - ends[-1]) / 1e6,
        "between tokens": statistics.median(between_ns) / 1e6,
        "json %": 100 * json_ns / (ends[-1] - begins[0]),
        "afterwards": (_all(stamps, "run_deferred", "end")[-1] - _all(stamps, "run_deferred", "begin")[-1])
        / 1e6,
        "generation": (ends[-1] - begins[0]) / 1e6,
    }


def _first(stamps: list[Stamp], name: str, edge: str) -> int:
    # The question for the stamps before this request has left its own behind it, up to its answer.
    return _all(stamps, name, edge)[0]


def _all(stamps: list[Stamp], name: str, edge: str) -> list[int]:
    return [at_ns for found, side, at_ns in stamps if (found, side) == (name, edge)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    shards = split("smollm2", CACHE / "smollm2-f32", dtype="f32").out
    samples: dict[str, dict[str, list[float]]] = {name: {} for name in requests()}
    environ = {"QUICKTHAW_SHARDS": str(shards), "QUICKTHAW_CACHE": str(CACHE)}
    for name in set(os.environ) - set(sampling.environment()):
        del os.environ[name]  # before the function inherits it
    with (
        tempfile.TemporaryDirectory() as task_root,
        running(Path(task_root), STAMPING, environ=environ) as function,
    ):
        for number in range(rounds + 1):
            for name, event in requests().items():
                for measured, value in measure(function, event).items():
                    if number:  # the first round warms
                        samples[name].setdefault(measured, []).append(value)
    report(samples)


def report(samples: dict[str, dict[str, list[float]]]) -> None:
    """Print the table, save every sample."""
    columns = list(next(iter(samples.values())))
    print("|", *(f"{column} |" for column in ["median (p90), ms", *columns]))
    print("|---" * (len(columns) + 1) + "|")
    for name, found in samples.items():
        cells = [
            f"{statistics.median(v):.3f} ({statistics.quantiles(v, n=10)[-1]:.3f})" for v in found.values()
        ]
        print("|", *(f"{cell} |" for cell in [name, *cells]))
    flat = {
        f"{name}: {column}": values for name, found in samples.items() for column, values in found.items()
    }
    sampling.save("overhead", flat, n_tokens=N_TOKENS, prompt=PROMPT, model="SmolLM2-135M-Instruct f32")


if __name__ == "__main__":
    main()
