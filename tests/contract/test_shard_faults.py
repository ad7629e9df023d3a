# SPDX-License-Identifier: Apache-2.0
"""Storage that fails under its shards, for real: an error of that request or success, and then answers."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from quickthaw.layers.errors import (
    ShardDamagedError,
    ShardError,
    ShardMissingError,
    ShardReplacedError,
    ShardTruncatedError,
    StorageError,
)
from quickthaw.layers.interpreter import Interpreter
from quickthaw.layers.kv import KeyValueCache
from quickthaw.layers.shard_set import ShardSet
from tests import fuse, shards

TOKENS = [1, 5, 9]
LAYER = "layer-001.safetensors"

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not os.path.exists("/dev/fuse"), reason="mounting needs root and /dev/fuse"
)


def answer(opened: ShardSet) -> list[int]:
    """Four tokens, greedily."""
    engine, cache, tokens = Interpreter(opened, 1), KeyValueCache(opened.manifest.model), list(TOKENS)
    for _ in range(4):
        tokens.append(int(engine.forward(tokens[cache.n_tokens :], cache).argmax()))
    return tokens


@pytest.fixture
def shard_set(tmp_path: Path) -> Path:
    made = shards.make(tmp_path)
    for path in made.iterdir():
        shards.settle(path)
    return made


@pytest.fixture
def right(shard_set: Path) -> list[int]:
    return answer(ShardSet.open(shard_set, shards.config(shard_set.parent)))


@pytest.fixture
def mount(shard_set: Path, tmp_path: Path) -> Iterator[fuse.Mount]:
    with fuse.mounted(shard_set, tmp_path / "mounted") as mount:
        yield mount


@pytest.fixture
def opened(mount: fuse.Mount, tmp_path: Path) -> Iterator[ShardSet]:
    """A set on the mount, nothing of which was looked at but the embedding."""
    del mount
    opened = ShardSet.open(tmp_path / "mounted", shards.config(tmp_path))
    yield opened
    opened.close()


def test_a_throttled_storage_takes_its_time(opened: ShardSet, mount: fuse.Mount, right: list[int]) -> None:
    mount.fail(delay_s=0.03)

    assert answer(opened) == right


def test_where_mmap_is_refused_shards_are_copied_and_that_is_said_once(
    mount: fuse.Mount, right: list[int], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    mount.fail(direct_io=True)
    opened = ShardSet.open(tmp_path / "mounted", shards.config(tmp_path))

    assert answer(opened) == right
    assert capfd.readouterr().err.count("read into memory of this process's own") == 1
    assert str(tmp_path / "mounted") not in Path("/proc/self/maps").read_text()


@pytest.mark.parametrize(
    ("faults", "kind", "told"),
    [
        ({"eio_from": {LAYER: 20_000}}, StorageError, os.strerror(errno.EIO)),
        ({"denied": (LAYER,)}, ShardMissingError, os.strerror(errno.EACCES)),
    ],
)
def test_what_cannot_be_read_is_told_until_it_can_be(
    opened: ShardSet,
    mount: fuse.Mount,
    right: list[int],
    faults: dict[str, object],
    kind: type[ShardError],
    told: str,
) -> None:
    mount.fail(**faults)  # type: ignore[arg-type]
    for _ in range(2):
        with pytest.raises(ShardError, match=told) as caught:
            answer(opened)
        assert type(caught.value) is kind
        assert LAYER in str(caught.value)

    mount.fail()
    assert answer(opened) == right


def test_a_mount_that_is_gone_is_told_of_until_it_is_back(
    opened: ShardSet, mount: fuse.Mount, right: list[int]
) -> None:
    assert answer(opened) == right
    mount.kill()
    for _ in range(2):
        with pytest.raises(StorageError, match=os.strerror(errno.ENOTCONN)):
            answer(opened)

    mount.unmount()
    mount.start()
    assert answer(opened) == right


@pytest.mark.parametrize("is_mounted", [False, True])
@pytest.mark.parametrize(
    ("damage", "kind"),
    [
        (lambda path: os.truncate(path, 8192), ShardTruncatedError),
        (lambda path: shards.flip_bit(path), ShardReplacedError),
        (lambda path: path.unlink(), ShardMissingError),
    ],
)
def test_a_file_that_changes_under_its_map_fails_requests_until_it_is_whole(
    request: pytest.FixtureRequest,
    shard_set: Path,
    tmp_path: Path,
    right: list[int],
    is_mounted: bool,
    damage: Callable[[Path], object],
    kind: type[ShardError],
) -> None:
    if is_mounted:
        opened = request.getfixturevalue("opened")
    else:
        opened = ShardSet.open(shard_set, shards.config(tmp_path))
    assert answer(opened) == right
    shutil.copy(shard_set / LAYER, tmp_path / "whole")

    damage(shard_set / LAYER)
    with pytest.raises(ShardError) as caught:
        answer(opened)
    assert type(caught.value) is kind
    with pytest.raises(ShardDamagedError if kind is ShardReplacedError else kind):
        answer(opened)

    shutil.copy(tmp_path / "whole", shard_set / LAYER)
    assert answer(opened) == right


CUT_WHILE_COMPUTING = """
import mmap, os, sys
import numpy as np
from quickthaw.layers.config import LayersConfig
from quickthaw.layers.shard_set import ShardSet

shards = ShardSet.open(sys.argv[1], LayersConfig.from_env({"QUICKTHAW_VERIFY": "never"}))
weight = shards.layer(1).tensor("down")
os.truncate(sys.argv[1] + "/layer-001.safetensors", 0)
weight.sum()
"""


def test_a_cut_in_the_middle_of_a_product_ends_the_process_and_nothing_is_computed(shard_set: Path) -> None:
    result = subprocess.run([sys.executable, "-c", CUT_WHILE_COMPUTING, str(shard_set)])

    assert result.returncode == -7  # SIGBUS


READ_ONLY = """
set -e
mount --make-rprivate /
mount --bind /tmp /tmp
mount -o remount,bind,ro /
mount -t tmpfs -o size=0,ro none /dev/shm
if touch /quickthaw-probe 2>/dev/null; then exit 99; fi
exec "$@"
"""


def test_only_tmp_may_be_written_and_there_is_no_shared_memory(shard_set: Path, tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from tests.contract.test_shard_faults import answer\n"
        "from tests import shards\n"
        "from quickthaw.layers.shard_set import ShardSet\n"
        "print(*answer(ShardSet.open(sys.argv[1], shards.config(Path(sys.argv[2])))))\n"
    )
    argv = ["unshare", "--mount", "sh", "-c", READ_ONLY, "sh", sys.executable, "-c", program]
    environ = {**os.environ, "PYTHONPATH": os.getcwd()}

    result = subprocess.run(
        [*argv, str(shard_set), str(tmp_path)], capture_output=True, text=True, check=True, env=environ
    )

    found = [int(token) for token in result.stdout.split()]
    assert found == answer(ShardSet.open(shard_set, shards.config(tmp_path)))
    assert np.all(np.array(found) >= 0)
