# SPDX-License-Identifier: Apache-2.0
"""With a criu that is a script; tests/contract/test_criu.py has the real one."""

import os
import sys
from pathlib import Path

import pytest

from quickthaw.snapshot.engines import criu_command
from quickthaw.snapshot.engines.criu_command import CriuCommand
from quickthaw.snapshot.errors import CriuFailedError, CriuMissingError, CriuNotPermittedError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has CRIU")

LOG = """\
(00.001) Error (criu/util.c:1533): rlimit: Can't setup RLIMIT_NOFILE for self: Operation not permitted
(00.002) Error (criu/file-lock.c:103): Some file locks are hold by dumping tasks!
(00.003) Error (criu/cr-dump.c:2111): Dumping FAILED.
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only one in which criu is looked for; and we are root."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(criu_command, "_SUPERUSER_FOLDERS", "")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return tmp_path


def put_criu(folder: Path, script: str, version: str = "4.1.1") -> None:
    path = folder / "criu"
    path.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo "Version: {version}" && exit\n{script}\n')
    path.chmod(0o755)


def test_it_is_not_there(folder: Path) -> None:
    del folder
    with pytest.raises(CriuMissingError, match="criu is not installed; install CRIU 4 or later"):
        CriuCommand()


@pytest.mark.parametrize(("version", "found"), [("3.17.1", "3.17.1"), ("", "one that does not say")])
def test_it_is_too_old(folder: Path, version: str, found: str) -> None:
    put_criu(folder, "", version)
    with pytest.raises(CriuMissingError, match=f"{folder}/criu: expected criu 4 or later, found {found}"):
        CriuCommand()


def test_it_is_of_another_kind_of_machine(folder: Path) -> None:
    (folder / "criu").write_bytes(b"\x7fELF")
    (folder / "criu").chmod(0o755)
    with pytest.raises(CriuMissingError, match="cannot be run"):
        CriuCommand()


def test_we_are_not_root(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_criu(folder, "")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(CriuNotPermittedError, match="needs root, and this is user 1000; use sudo"):
        CriuCommand()


def test_the_kernel_cannot_do_it(folder: Path) -> None:
    put_criu(folder, 'echo "(00.1) Error (criu/cr-check.c:1): no pidfd here"; exit 1')
    with pytest.raises(CriuFailedError, match="criu check failed: no pidfd here; this kernel cannot"):
        CriuCommand().check()


def test_a_failure_is_told_without_what_is_beside_the_point(folder: Path, tmp_path: Path) -> None:
    (folder / "log").write_text(LOG)
    put_criu(folder, f"/bin/cat {folder}/log; exit 1")
    with pytest.raises(CriuFailedError) as failure:
        CriuCommand().dump(1, tmp_path)
    assert str(failure.value) == "criu dump failed: Some file locks are hold by dumping tasks!"


def test_a_failure_without_a_word(folder: Path, tmp_path: Path) -> None:
    put_criu(folder, "exit 3")
    with pytest.raises(CriuFailedError, match="criu restore failed: exit status 3"):
        CriuCommand().restore(tmp_path, {"pipe:[1]": 1})


def test_what_it_is_asked(folder: Path, tmp_path: Path) -> None:
    put_criu(
        folder,
        f'echo "$@" > {folder}/asked\nwhile [ "$1" != --pidfile ]; do shift; done; echo 42 > "$2"',
    )
    images = tmp_path / "images"
    images.mkdir()
    command = CriuCommand()

    assert command.version == "4.1.1"
    assert command.restore(images, {"pipe:[7]": 1, "srv/gate": 2}) == 42
    asked = (folder / "asked").read_text().split()
    assert asked[0] == "restore"
    assert asked[-4:] == ["--inherit-fd", "fd[1]:pipe:[7]", "--inherit-fd", "fd[2]:srv/gate"]
    assert os.listdir(images) == []
