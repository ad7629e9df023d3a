# SPDX-License-Identifier: Apache-2.0
"""The SAM CLI on the project's template, without AWS."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.contract.emulator import free_ports, listens
from tests.contract.fronts import TIMEOUT_S, wait_until

ROOT = Path(__file__).parents[2]
RUNTIME = "python3.13"  # the template's
_QUIET = {"SAM_CLI_TELEMETRY": "0", "AWS_DEFAULT_REGION": "us-east-1", "NO_COLOR": "1"}


def find_runtime_python() -> Path | None:
    """This machine's own interpreter of the version that the template names."""
    found = shutil.which(RUNTIME)
    if shutil.which("pyenv") is not None:  # whose own entry on the PATH may lead nowhere
        versions = subprocess.run(
            ["pyenv", "root"], capture_output=True, text=True, check=True
        ).stdout.strip()
        found = next(map(str, Path(versions).glob(f"versions/*/bin/{RUNTIME}")), found)
    return None if found is None else Path(found)


class Sam:
    """Runs commands of it in the project's root; what they need written lies under `work`."""

    def __init__(self, program: Path, work: Path) -> None:
        self._program = program
        self._work = work

    def run(self, *arguments: str | Path, environ: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        """Run one command; its output and its log."""
        done = subprocess.run(
            self._command(*arguments),
            cwd=ROOT,
            env={**os.environ, **_QUIET, **environ},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done

    def invoke(
        self, template: Path, function: str, event: object, environ: Mapping[str, str], **parameters: object
    ) -> tuple[Any, str]:
        """`sam local invoke`: the answer's JSON, and what function and emulator wrote."""
        path = self._work / "event.json"
        path.write_text(json.dumps(event))
        command = ("local", "invoke", function, "--template", template, "--event", path, "--skip-pull-image")
        done = self.run(*command, *_overrides(parameters), environ=environ)
        return json.loads(done.stdout), done.stderr

    @contextmanager
    def serving(self, template: Path, environ: Mapping[str, str]) -> Iterator[int]:
        """`sam local start-api`, until the end of the block: its port."""
        (port,) = free_ports(1)
        command = ("local", "start-api", "--template", template, "--port", str(port), "--skip-pull-image")
        with (self._work / "start-api.log").open("wb") as log:
            process = subprocess.Popen(
                self._command(*command),
                cwd=ROOT,
                env={**os.environ, **_QUIET, **environ},
                stdout=log,
                stderr=log,
            )
        try:
            wait_until(lambda: listens(port))
            yield port
        finally:
            process.terminate()
            process.wait(TIMEOUT_S)

    def _command(self, *arguments: str | Path) -> list[str]:
        return [str(self._program), *map(str, arguments)]


def _overrides(parameters: Mapping[str, object]) -> list[str]:
    pairs = [f"{name}={value}" for name, value in parameters.items()]
    return ["--parameter-overrides", *pairs] if pairs else []
