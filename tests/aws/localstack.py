# SPDX-License-Identifier: Apache-2.0
"""LocalStack as `make localstack` brings it up, in a folder and on a port of the test's own."""

import io
import os
import signal
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from tests.contract.emulator import free_ports

ROOT = Path(__file__).parents[2]
ROLE = "arn:aws:iam::000000000000:role/quickthaw"


class LocalStack:
    """`make` with variables of its own; clients of boto3 for what runs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (self._port,) = free_ports(1)
        self.address = f"http://127.0.0.1:{self._port}"
        self.url = ""  # of the REST API, once it is up

    @property
    def pid(self) -> int:
        """Its process."""
        return int((self._folder / "run" / "pid").read_text())

    def make(self, target: str) -> str:
        """Run a target of the Makefile; the last line that it prints."""
        variables = [f"LOCALSTACK={self._folder}", f"PORT={self._port}"]
        done = subprocess.run(
            ["make", "--no-print-directory", target, *variables],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip().rpartition("\n")[2]

    def up(self) -> None:
        """`make localstack`."""
        self.url = self.make("localstack")

    def kill(self) -> None:
        """As the kernel does when memory is short."""
        os.kill(self.pid, signal.SIGKILL)

    def client(self, service: str) -> Any:
        """A client that does not try again, and waits long."""
        return boto3.client(
            service,
            endpoint_url=self.address,
            region_name="us-east-1",
            aws_access_key_id="test",
            aws_secret_access_key="test",
            config=Config(retries={"max_attempts": 0}, read_timeout=120),
        )

    def create(self, name: str, source: str, timeout_s: int = 20) -> None:
        """A function of one file, whose `handler` it is."""
        self.client("lambda").create_function(
            FunctionName=name,
            Runtime="python3.13",
            Handler="function.handler",
            Role=ROLE,
            Timeout=timeout_s,
            Code={"ZipFile": zipped(source)},
        )
        self.client("lambda").get_waiter("function_active_v2").wait(FunctionName=name)


def zipped(source: str) -> bytes:
    """A function's zip with one file in it."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("function.py", source)
    return file.getvalue()
