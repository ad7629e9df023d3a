# SPDX-License-Identifier: Apache-2.0
"""A function that takes more memory than it may is ended: by the kernel where it is permitted, else by us."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from quickthaw.snapshot.engines.cold import ColdEngine
from quickthaw.snapshot.errors import FunctionExitedError
from quickthaw.snapshot.host.instance import Instance
from quickthaw.snapshot.host.memory_limit import GroupLimit, MemoryLimit, WatchedLimit, memory_limit
from quickthaw.snapshot.host.process_memory import anonymous_bytes, peak_mib, resident_bytes_by_file
from tests.contract.fronts import TIMEOUT_S

LIMIT_MIB = 128
# Memory is touched, not only asked for; the file's pages are no memory of its own.
FUNCTION = """
import mmap, time
kept = []
def handle(event, context):
    if "map" in event:
        with open(event["map"], "rb") as file:
            kept.append(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
        return sum(kept[-1][::4096])
    for _ in range(event["mib"]):
        kept.append(b"x" * (1 << 20))
        time.sleep(0.002)
    return len(kept)
"""


def _group() -> MemoryLimit:
    limit = memory_limit(LIMIT_MIB)
    if not isinstance(limit, GroupLimit):
        pytest.skip("this process may not make control groups with a memory limit: that takes root, mostly")
    return limit


@pytest.fixture(params=["group", "watched"])
def limit(request: pytest.FixtureRequest) -> Iterator[MemoryLimit]:
    with _group() if request.param == "group" else WatchedLimit(LIMIT_MIB) as limit:
        yield limit


@pytest.fixture
def instance(tmp_path: Path, limit: MemoryLimit) -> Iterator[Instance]:
    (tmp_path / "handler.py").write_text(FUNCTION)
    with Instance(ColdEngine("handler.handle", str(tmp_path)), os.environ, [].append) as instance:
        limit.apply(instance)
        instance.wait_ready(TIMEOUT_S)
        yield instance


def _ask(instance: Instance, event: object) -> object:
    chunks = instance.invoke(json.dumps(event).encode(), TIMEOUT_S)
    return json.loads(b"".join(chunk.data for chunk in chunks))


def test_too_much_ends_it(instance: Instance) -> None:
    assert _ask(instance, {"mib": 32}) == 32
    with pytest.raises(FunctionExitedError, match=r"Runtime\.ExitError: Runtime exited with error: signal: "):
        _ask(instance, {"mib": 4 * LIMIT_MIB})


def test_a_mapped_file_does_not_count(instance: Instance, tmp_path: Path) -> None:
    path = tmp_path / "weights"
    with path.open("wb") as file:
        file.truncate(2 * LIMIT_MIB << 20)
    assert _ask(instance, {"map": str(path)}) == 0
    assert _ask(instance, {"mib": 8}) == 9


def test_nothing_is_left_of_a_group(tmp_path: Path) -> None:
    (tmp_path / "handler.py").write_text(FUNCTION)
    with _group() as limit:
        assert isinstance(limit, GroupLimit)
        for _ in range(3):
            with Instance(ColdEngine("handler.handle", str(tmp_path)), os.environ, [].append) as instance:
                limit.apply(instance)
                instance.wait_ready(TIMEOUT_S)
                assert len(limit.groups()) == 1
    assert limit.groups() == []


def test_what_a_process_has(tmp_path: Path) -> None:
    (tmp_path / "handler.py").write_text(FUNCTION)
    path = tmp_path / "layer.safetensors"
    path.write_bytes(bytes(1 << 20))
    with Instance(ColdEngine("handler.handle", str(tmp_path)), os.environ, [].append) as instance:
        instance.wait_ready(TIMEOUT_S)
        before = anonymous_bytes(instance.pid)
        if before is None:
            pytest.skip("this kernel does not say what memory is anonymous")
        assert resident_bytes_by_file(instance.pid, ".safetensors") == {}
        _ask(instance, {"map": str(path)})
        _ask(instance, {"mib": 16})
        after = anonymous_bytes(instance.pid)
        assert after is not None
        assert (after - before) >> 20 in (16, 17)
        assert (peak_mib(instance.pid) or 0) > after >> 20
        assert resident_bytes_by_file(instance.pid, ".safetensors") == {str(path): 1 << 20}
    assert anonymous_bytes(instance.pid) is None
