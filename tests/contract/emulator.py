# SPDX-License-Identifier: Apache-2.0
"""Runs a function under AWS's Runtime Interface Emulator, which takes one request at a time."""

import json
import os
import platform
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from socket import create_connection, create_server
from typing import Any

from tests.contract.fronts import TIMEOUT_S, wait_until

_CACHE = Path(__file__).parents[1] / ".cache"
_SAM_VERSION = "1.170.0"
_EMULATORS = {"x86_64": "aws-lambda-rie-x86_64", "aarch64": "aws-lambda-rie-arm64"}
_PATH = "/2015-03-31/functions/function/invocations"


def find_emulator() -> Path | None:
    """The emulator, out of the wheel of AWS's SAM CLI, which is not installed; None where AWS builds none."""
    name = _EMULATORS.get(platform.machine()) if sys.platform == "linux" else None
    if name is None:
        return None
    path = _CACHE / f"{name}-{_SAM_VERSION}"
    if not path.exists():
        _CACHE.mkdir(exist_ok=True)
        package = f"aws-sam-cli=={_SAM_VERSION}"
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        subprocess.run([*pip, "--dest", str(_CACHE), package], check=True)
        wheel = _CACHE / f"aws_sam_cli-{_SAM_VERSION}-py3-none-any.whl"
        partial = path.with_suffix(f".{os.getpid()}")
        with zipfile.ZipFile(wheel) as archive:
            partial.write_bytes(archive.read(f"samcli/local/rapid/{name}"))
        partial.chmod(0o755)
        partial.rename(path)
        wheel.unlink()
    return path


class Emulator:
    """An emulator that listens, and its log. The function is started with the first event."""

    def __init__(self, port: int, log: Path) -> None:
        self.port = port
        self._log = log

    @property
    def log(self) -> str:
        """What emulator and function have written."""
        return self._log.read_text()

    def ask(self, event: object) -> tuple[int, bytes]:
        """Send one event; return the emulator's HTTP status and what the function answered."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_S)
        try:
            connection.request("POST", _PATH, json.dumps(event).encode())
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def ask_json(self, event: object) -> Any:
        """Send one event; return the answer's JSON."""
        status, body = self.ask(event)
        assert status == 200, body
        return json.loads(body)


@contextmanager
def emulating(
    emulator_path: Path, task_root: Path, handler: str, environ: Mapping[str, str], bootstrap: str
) -> Iterator[Emulator]:
    """Run `handler` until the end of the block."""
    port, runtime_port = free_ports(2)
    command = [
        str(emulator_path),
        *("--runtime-interface-emulator-address", f"127.0.0.1:{port}"),
        *("--runtime-api-address", f"127.0.0.1:{runtime_port}"),
        *(sys.executable, "-m", bootstrap, handler),
    ]
    log = task_root / "emulator.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=task_root, env=environ, stdout=output, stderr=subprocess.STDOUT
        )
    try:
        wait_until(lambda: listens(port))
        yield Emulator(port, log)
    finally:
        process.terminate()  # upon which it ends the function
        process.wait(TIMEOUT_S)


def free_ports(n_ports: int) -> list[int]:
    """Ports that nobody has now, all of them different."""
    with ExitStack() as open_sockets:
        sockets = [open_sockets.enter_context(create_server(("127.0.0.1", 0))) for _ in range(n_ports)]
        return [each.getsockname()[1] for each in sockets]


def listens(port: int) -> bool:
    """Whether something listens there."""
    try:
        create_connection(("127.0.0.1", port)).close()
    except ConnectionRefusedError:
        return False
    return True
