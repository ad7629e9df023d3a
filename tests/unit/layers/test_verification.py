# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from quickthaw.layers.config import Verify
from quickthaw.layers.errors import ShardDamagedError
from quickthaw.layers.storage.regular_file import open_regular
from quickthaw.layers.verification import Verifier
from tests import shards

CONTENT = b"weights" * 1000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "shard"
    path.write_bytes(CONTENT)
    shards.settle(path)
    return path


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def check(verify: Verify, cache: Path, path: Path, sha256: str = SHA256) -> None:
    with open_regular(path, path.stat().st_size) as file:
        Verifier(verify, cache).check(file, path, sha256)


def damage_unseen(path: Path) -> None:
    """Flips a bit and sets the times back as far as a program can: ctime still tells."""
    status = path.stat()
    with open(path, "r+b") as file:
        file.write(b"W")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize("verify", [Verify.FIRST, Verify.ALWAYS])
def test_a_damaged_file_is_refused(verify: Verify, cache: Path, path: Path) -> None:
    damage_unseen(path)

    with pytest.raises(ShardDamagedError, match=f"expected SHA-256 {SHA256}, found"):
        check(verify, cache, path)
    assert not cache.exists()


def test_never_does_not_read_the_file(cache: Path, path: Path) -> None:
    check(Verify.NEVER, cache, path, sha256="0" * 64)

    assert not cache.exists()


def test_first_remembers_a_file_across_processes(cache: Path, path: Path) -> None:
    check(Verify.FIRST, cache, path)
    lines = (cache / "verified").read_text().splitlines()

    with open_regular(path, len(CONTENT)) as file:
        Verifier(Verify.FIRST, cache).check(file, path, SHA256)
        assert file.tell() == 0  # the stamp was enough

    assert len(lines) == 1
    assert lines == (cache / "verified").read_text().splitlines()


def test_a_stamp_vouches_for_one_digest_only(cache: Path, path: Path) -> None:
    check(Verify.FIRST, cache, path)

    with pytest.raises(ShardDamagedError):
        check(Verify.FIRST, cache, path, sha256="0" * 64)


def test_a_stamped_file_that_changed_is_verified_again(cache: Path, path: Path) -> None:
    check(Verify.FIRST, cache, path)
    damage_unseen(path)

    with pytest.raises(ShardDamagedError):
        check(Verify.FIRST, cache, path)


def test_always_takes_no_stamp_for_an_answer(cache: Path, path: Path) -> None:
    check(Verify.FIRST, cache, path)

    with open_regular(path, len(CONTENT)) as file:
        Verifier(Verify.ALWAYS, cache).check(file, path, SHA256)
        assert file.tell() == len(CONTENT)


def test_the_cache_belongs_to_this_user_alone(cache: Path, path: Path) -> None:
    check(Verify.FIRST, cache, path)

    assert cache.stat().st_mode & 0o777 == 0o700
    assert (cache / "verified").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("mode", [0o777, 0o720, 0o702])
def test_stamps_that_others_could_write_are_not_believed(
    cache: Path, path: Path, mode: int, capsys: pytest.CaptureFixture[str]
) -> None:
    check(Verify.FIRST, cache, path)
    cache.chmod(mode)

    with open_regular(path, len(CONTENT)) as file:
        Verifier(Verify.FIRST, cache).check(file, path, SHA256)
        assert file.tell() == len(CONTENT)
    assert "can be written by, somebody else" in capsys.readouterr().err


def test_a_cache_that_is_a_link_is_not_believed(cache: Path, path: Path, tmp_path: Path) -> None:
    check(Verify.FIRST, cache, path)
    link = tmp_path / "link"
    link.symlink_to(cache)

    with open_regular(path, len(CONTENT)) as file:
        Verifier(Verify.FIRST, link).check(file, path, SHA256)
        assert file.tell() == len(CONTENT)


def test_a_cache_that_cannot_be_written_is_told_once(
    tmp_path: Path, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    verifier = Verifier(Verify.FIRST, tmp_path / "file" / "cache")

    for _ in range(3):
        with open_regular(path, len(CONTENT)) as file:
            verifier.check(file, path, SHA256)
            assert file.tell() == len(CONTENT)

    assert capsys.readouterr().err.count("cannot remember verified shards") == 1


def test_garbage_among_the_stamps_is_no_stamp(cache: Path, path: Path) -> None:
    check(Verify.FIRST, cache, path)
    (cache / "verified").write_bytes(b"\xff\x00\n" + SHA256.encode() + b"\n\n")

    check(Verify.FIRST, cache, path)

    assert len((cache / "verified").read_bytes().splitlines()) == 4


def test_a_file_changed_this_moment_gets_no_stamp(cache: Path, path: Path) -> None:
    path.touch()

    check(Verify.FIRST, cache, path)
    assert not cache.exists()

    shards.settle(path)
    check(Verify.FIRST, cache, path)
    assert (cache / "verified").exists()


def test_stamps_do_not_grow_for_ever(cache: Path, path: Path) -> None:
    cache.mkdir(mode=0o700)
    (cache / "verified").write_bytes(b"x" * (5 << 20))

    check(Verify.FIRST, cache, path)

    assert (cache / "verified").stat().st_size < 1000
