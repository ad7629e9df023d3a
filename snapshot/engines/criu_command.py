# SPDX-License-Identifier: Apache-2.0
"""The program `criu`: found, asked whether it can work here, run.

Source: criu(8). CRIU 4 is asked for: older ones do not know what current kernels do.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from quickthaw.snapshot.errors import CriuFailedError, CriuMissingError, CriuNotPermittedError

_MIN_VERSION = 4
_SUPERUSER_FOLDERS = "/usr/local/sbin:/usr/sbin:/sbin"  # not on everybody's PATH
_TIMEOUT_S = 120.0
_NOISE = ("rlimit: ", "FAILED")  # it may go on without, and it says that it has failed


class CriuCommand:
    """A `criu` that is there, recent enough, and may do its work.

    Raises: CriuMissingError, CriuNotPermittedError
    """

    def __init__(self) -> None:
        path = shutil.which("criu") or shutil.which("criu", path=_SUPERUSER_FOLDERS)
        if path is None:
            raise CriuMissingError("criu is not installed")
        if os.geteuid() != 0:
            raise CriuNotPermittedError(os.geteuid())
        self._path = path
        self.version = self._read_version()

    def check(self) -> None:
        """Raises: CriuFailedError when this kernel lacks something that is needed."""
        self._run("check", [])

    def dump(self, pid: int, images: Path) -> None:
        """Put a process and its children on disk; they are gone then. Raises: CriuFailedError."""
        self._run("dump", ["--tree", str(pid), "--images-dir", str(images), "-v1"])

    def restore(self, images: Path, inherited: Mapping[str, int]) -> int:
        """Bring a process back as our own child; return its pid.

        `inherited`: for what CRIU calls so, the process gets one of our descriptors in its place.
        Raises: CriuFailedError
        """
        kept = inherited.values()
        pid_file = images / f"pid-{os.getpid()}-{min(kept)}"  # nobody else of ours has this descriptor now
        pid_file.unlink(missing_ok=True)
        arguments = ["--images-dir", str(images), "--pidfile", str(pid_file), "-v1"]
        arguments += ["--restore-detached", "--restore-sibling"]
        for name, descriptor in inherited.items():
            arguments += ["--inherit-fd", f"fd[{descriptor}]:{name}"]
        try:
            self._run("restore", arguments, tuple(kept))
            return int(pid_file.read_text())
        finally:
            pid_file.unlink(missing_ok=True)

    def _read_version(self) -> str:
        match = re.search(r"(\d+)\.[\d.]+", self._run("--version", []))
        if match is None or int(match[1]) < _MIN_VERSION:
            found = "one that does not say its version" if match is None else match[0]
            raise CriuMissingError(f"{self._path}: expected criu {_MIN_VERSION} or later, found {found}")
        return match[0]

    def _run(self, action: str, arguments: Sequence[str], kept: tuple[int, ...] = ()) -> str:
        try:
            done = subprocess.run(
                [self._path, action, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=kept,
                timeout=_TIMEOUT_S,
                text=True,
                errors="replace",
            )
        except subprocess.TimeoutExpired as exc:
            raise CriuFailedError(action, f"not done after {_TIMEOUT_S:.0f} seconds") from exc
        except OSError as exc:
            raise CriuMissingError(f"{self._path} cannot be run: {exc}") from exc
        if done.returncode != 0:
            raise CriuFailedError(action, _reason(done.stdout, done.returncode))
        return done.stdout


def _reason(log: str, status: int) -> str:
    """The first things that went wrong; what follows is how it gave up."""
    lines = [line.partition("): ")[2].strip() for line in log.splitlines() if "Error (" in line]
    lines = [line for line in lines if not any(noise in line for noise in _NOISE)]
    return "; ".join(lines[:3]) or log.strip()[-300:] or f"exit status {status}"
