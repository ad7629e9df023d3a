# SPDX-License-Identifier: Apache-2.0
"""A process on disk: CRIU's images, and what they are of.

    DIR/              0700, for the images hold all that the process had in its memory
      capture.json    what it is a capture of; written last: without it there is no capture
      images/         CRIU's
      gate            a FIFO, while the process is on its way there

A directory that others may write to is not read: who writes there chooses what runs here, as root.
"""

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from quickthaw.snapshot.errors import CaptureDirectoryError, CaptureMissingError
from quickthaw.snapshot.fingerprint import Fingerprint

_VERSION = 1
_RECORD = "capture.json"
_IMAGES = "images"
_GATE = "gate"
_OURS = {_RECORD, f"{_RECORD}.new", _IMAGES, _GATE}


@dataclass(frozen=True, slots=True)
class Capture:
    """What capture.json says.

    `output`, `lifeline` and `gate` are CRIU's names of what each restored process gets one of its own of.
    `captured_at` is ISO 8601.
    """

    handler: str
    task_root: str | None
    captured_at: str
    criu_version: str
    output: str
    lifeline: str
    gate: str
    fingerprint: Fingerprint


class CaptureDirectory:
    """Where a capture is, or is to be."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()

    @property
    def images(self) -> Path:
        """CRIU's images."""
        return self.path / _IMAGES

    @property
    def gate(self) -> Path:
        """Where the process waits to be dumped."""
        return self.path / _GATE

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Nobody replaces the capture meanwhile. Raises: CaptureMissingError."""
        with ExitStack() as stack:
            try:
                stack.enter_context(self._locked(fcntl.LOCK_SH))
            except OSError as exc:
                raise CaptureMissingError(self.path, exc.strerror or str(exc)) from exc
            yield

    @contextmanager
    def replacing(self) -> Iterator[None]:
        """Nobody uses the capture meanwhile; there is none, and room for another.

        Raises: CaptureDirectoryError when it holds something else, or cannot be made.
        """
        with ExitStack() as stack:
            try:
                self.path.mkdir(0o700, parents=True, exist_ok=True)
                stack.enter_context(self._locked(fcntl.LOCK_EX))
                self._make_room()
            except OSError as exc:
                raise CaptureDirectoryError(self.path, exc) from exc
            yield

    def read(self) -> Capture:
        """Raises: CaptureMissingError when there is no capture that may be used."""
        try:
            status = self.path.stat()
            document = json.loads((self.path / _RECORD).read_bytes())
        except FileNotFoundError as exc:
            raise CaptureMissingError(self.path, f"no {_RECORD}") from exc
        except (OSError, ValueError) as exc:
            raise CaptureMissingError(self.path, f"{_RECORD} cannot be read: {exc}") from exc
        if status.st_uid != os.geteuid() or status.st_mode & 0o077:
            found = f"owner {status.st_uid}, mode {status.st_mode & 0o777:04o}"
            raise CaptureMissingError(self.path, f"expected a directory of ours alone, found {found}")
        return self._parse(document)

    def write(self, capture: Capture) -> None:
        """The images are whole."""
        new = self.path / f"{_RECORD}.new"
        new.write_text(json.dumps({"version": _VERSION, **asdict(capture)}, indent=1) + "\n")
        new.rename(self.path / _RECORD)

    def size_bytes(self) -> int:
        """What the images take."""
        return sum(image.stat().st_size for image in self.images.iterdir())

    def _parse(self, document: Any) -> Capture:
        version = document.pop("version", None) if isinstance(document, dict) else None
        if version != _VERSION:
            raise CaptureMissingError(self.path, f"{_RECORD}: expected version {_VERSION}, found {version!r}")
        try:
            return Capture(**document)
        except TypeError as exc:
            raise CaptureMissingError(self.path, f"{_RECORD}: {exc}") from exc

    def _make_room(self) -> None:
        others = set(os.listdir(self.path)) - _OURS
        if others:
            raise CaptureDirectoryError(self.path, f"it holds {min(others)}, which is no capture")
        self.path.chmod(0o700)
        (self.path / _RECORD).unlink(missing_ok=True)  # first: from here on there is no capture
        self.gate.unlink(missing_ok=True)
        shutil.rmtree(self.images, ignore_errors=True)
        self.images.mkdir(0o700)

    @contextmanager
    def _locked(self, how: int) -> Iterator[None]:
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, how)
            yield
        finally:
            os.close(descriptor)
