# SPDX-License-Identifier: Apache-2.0
"""What the host adds to a warm function: beside AWS's emulator, with many clients, with many streams.

    latency      one client, one kept connection, an empty function; the host and the emulator take turns
    throughput   several clients, as many processes, two instances of the empty function
    streams      eight at once of SmolLM2: how evenly the tokens come

`python -m tests.bench.host`. The bars: the host's median at most 1.5 of the emulator's; 2,000 invokes/s.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from socket import IPPROTO_TCP, TCP_NODELAY, create_connection

from tests.bench import sampling
from tests.contract.emulator import emulating, find_emulator

CACHE = Path(__file__).parent / ".cache"
EMPTY = "def handle(event, context):\n    return event\n"
EVENT = b'{"a": 1}'
N_TOKENS = 48
_ANSWERS = (b'\r\n\r\n{"a":1}', b'\r\n\r\n{"a": 1}')  # as orjson writes it, and json
_MAX_ANSWER_BYTES = 4096


class Client:
    """One kept connection to an Invoke API; as little in the way as there can be."""

    def __init__(self, port: int) -> None:
        self._socket = create_connection(("127.0.0.1", port), timeout=60)
        self._socket.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)
        self._request = (
            b"POST /2015-03-31/functions/function/invocations HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(EVENT), EVENT)
        )

    def invoke(self) -> float:
        """Milliseconds to the last byte of the answer, which has to be right."""
        start_ns = time.perf_counter_ns()
        self._socket.sendall(self._request)
        data = b""
        while not data.endswith(_ANSWERS):  # which is cheap: what the client computes, nobody else can
            received = self._socket.recv(65_536)
            data += received
            if not received or len(data) > _MAX_ANSWER_BYTES:
                raise SystemExit(f"not the answer: {data[:300]!r}")
        if not data.startswith(b"HTTP/1.1 200"):
            raise SystemExit(f"not the answer: {data[:300]!r}")
        return (time.perf_counter_ns() - start_ns) / 1e6


@contextmanager
def hosting(task_root: Path, *arguments: str) -> Iterator[int]:
    """Run `quickthaw host` as a person would; yield its port."""
    program = "import sys; from quickthaw.handler.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", program, "host", *arguments, "--port", "0"]
    with subprocess.Popen(
        command,
        cwd=task_root,
        env=sampling.environment(PYTHONUNBUFFERED="1", QUICKTHAW_LOG="off"),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            port = int(process.stdout.readline().rpartition(":")[2])
            process.stdout.readline()  # its first instance is ready
            threading.Thread(target=process.stdout.read, daemon=True).start()
            yield port
        finally:
            process.terminate()


def latency(task_root: Path, n_rounds: int) -> sampling.Samples:
    """One invoke each, in turns."""
    emulator_path = find_emulator()
    if emulator_path is None:
        raise SystemExit("AWS builds no emulator for this machine")
    with (
        hosting(task_root, "handler.handle", "--max-instances", "1") as port,
        emulating(
            emulator_path, task_root, "handler.handle", sampling.environment(), "awslambdaric"
        ) as emulator,
    ):
        host, peer = Client(port), Client(emulator.port)
        for client in (host, peer):
            for _ in range(50):
                client.invoke()
        return sampling.interleave({"host": host.invoke, "emulator": peer.invoke}, n_rounds)


def throughput(task_root: Path, n_clients: int, seconds: float) -> float:
    """Invokes a second of several clients together; a wrong answer ends the program."""
    with hosting(task_root, "handler.handle", "--max-instances", "2", "--min-warm", "2") as port:
        context = get_context("spawn")
        with context.Pool(n_clients) as clients:
            clients.map(_invoke_for, [(port, 1.0)] * n_clients, chunksize=1)
            return sum(clients.map(_invoke_for, [(port, seconds)] * n_clients, chunksize=1))


def _invoke_for(task: tuple[int, float]) -> float:
    """How many a second."""
    port, seconds = task
    client, n, start = Client(port), 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        client.invoke()
        n += 1
    return n / (time.perf_counter() - start)


def streams(shards: Path, n_streams: int) -> list[float]:
    """Every time between two tokens of one stream, in ms, of several streams at once."""
    gaps: list[float] = []
    n = str(n_streams)
    with hosting(Path.cwd(), "--shards", str(shards), "--max-instances", n, "--min-warm", n) as port:
        readers = [threading.Thread(target=read_stream, args=(port, gaps)) for _ in range(n_streams)]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
    if len(gaps) < n_streams * (N_TOKENS - 2):
        raise SystemExit(f"only {len(gaps)} tokens came")
    return gaps


def read_stream(port: int, gaps: list[float]) -> None:
    body = json.dumps(
        {"prompt": "The sky is", "max_tokens": N_TOKENS, "stream": True, "temperature": 0}
    ).encode()
    connection = create_connection(("127.0.0.1", port), timeout=120)
    connection.sendall(
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Connection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    )
    last_ns = 0
    while data := connection.recv(65_536):
        if n := data.count(b"data: {"):
            now_ns = time.perf_counter_ns()
            if last_ns:
                gaps += [(now_ns - last_ns) / 1e6, *[0.0] * (n - 1)]  # some may come together
            last_ns = now_ns


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--streams", type=int, default=8, help="0 leaves them out")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        task_root = Path(directory)
        (task_root / "handler.py").write_text(EMPTY)
        samples = latency(task_root, arguments.rounds)
        medians = {name: statistics.median(values) for name, values in samples.items()}
        for name, values in samples.items():
            p99 = statistics.quantiles(values, n=100)[-1]
            print(f"{name}: median {medians[name]:.3f} ms, 99th percentile {p99:.3f} ms, n = {len(values)}")
        print(f"host / emulator: {medians['host'] / medians['emulator']:.2f}", flush=True)
        rate = throughput(task_root, arguments.clients, arguments.seconds)
        samples["invokes a second"] = [rate]
        print(f"{arguments.clients} clients: {rate:.0f} invokes/s, no error", flush=True)
    if arguments.streams:
        from quickthaw.layers.checkpoints.split import split

        gaps = streams(split("smollm2", CACHE / "smollm2-f32", dtype="f32").out, arguments.streams)
        samples["inter-token"] = gaps
        median, p99 = statistics.median(gaps), statistics.quantiles(gaps, n=100)[-1]
        print(f"{arguments.streams} streams: between tokens {median:.1f} ms, 99th percentile {p99:.1f} ms")
    parameters = {name: getattr(arguments, name) for name in ("clients", "seconds", "streams")}
    sampling.save("host", samples, **parameters, n_cpus=os.cpu_count())


if __name__ == "__main__":
    main()
