# SPDX-License-Identifier: Apache-2.0
"""A function whose shards lie in S3: a real server, real processes, one cache."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from quickthaw.snapshot.engines.cold import ColdEngine
from quickthaw.snapshot.engines.zygote import ZygoteEngine
from tests import s3_proxy as proxies
from tests import shards
from tests.contract.engines import MakeEngine, capturing, started
from tests.contract.fronts import OURS, wait_until
from tests.contract.functions import running
from tests.s3_proxy import Proxy
from tests.seaweed import BUCKET, Seaweed

LOOKING = """
import sys
from quickthaw.handler import app

def handle(event, context):
    if event == "modules":
        return sorted(sys.modules)
    return app.lambda_handler(event, context)
"""
READING = """
from quickthaw.layers.config import LayersConfig
from quickthaw.layers.shard_set import ShardSet

config = LayersConfig.from_env()
shards = ShardSet.open(config.shards, config)
print("open", flush=True)
for index in range(shards.manifest.model.n_layers):
    shards.layer(index)
print("whole", flush=True)
shards.close()
"""
# What is registered last runs first: it looks when everybody else is done.
LOOKING_LAST = """
from quickthaw.snapshot import connections
from quickthaw.snapshot.hooks import register_before_snapshot

seen = []
register_before_snapshot(lambda: seen.append(len(connections.find())))

from quickthaw.handler import app

def handle(event, context):
    return seen[0]
"""
READING_ON = """
from quickthaw.layers.config import LayersConfig
from quickthaw.layers.shard_set import ShardSet
from quickthaw.snapshot import connections
from quickthaw.snapshot.hooks import register_before_snapshot

config = LayersConfig.from_env()
shards = ShardSet.open(config.shards, config)
seen = []
register_before_snapshot(lambda: seen.append(len(connections.find())))
register_before_snapshot(shards.release)

def handle(event, context):
    return {"name": shards.layer(event).name, "n_connections_captured": seen[0]}
"""
EVENT = {"prompt": [5, 6, 7], "max_tokens": 4}


@pytest.fixture(scope="module")
def shard_set(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny set on disk."""
    return shards.make(tmp_path_factory.mktemp("s3"))


@pytest.fixture(scope="module")
def location(seaweed: Seaweed, shard_set: Path) -> str:
    """The same set in S3."""
    return seaweed.put_all(shard_set, "tiny")


@pytest.fixture
def environ(seaweed: Seaweed, location: str, tmp_path: Path) -> dict[str, str]:
    """What a function is told, with a cache of its own."""
    return {
        **seaweed.environ(),
        "QUICKTHAW_SHARDS": location,
        "QUICKTHAW_CACHE": str(tmp_path / "cache"),
    }


@pytest.fixture
def proxy(seaweed: Seaweed, environ: dict[str, str]) -> Iterator[Proxy]:
    """What the function takes for S3."""
    with proxies.between(seaweed.port) as proxy:
        environ["AWS_ENDPOINT_URL"] = proxy.endpoint
        yield proxy


def _cached(environ: dict[str, str]) -> list[str]:
    return sorted(os.listdir(Path(environ["QUICKTHAW_CACHE"], "shards")))


def _digests(shard_set: Path) -> list[str]:
    record = json.loads((shard_set / "manifest.json").read_text())
    return sorted(shard["sha256"] for shard in record["shards"])


def test_it_answers_as_from_a_disk_and_imports_nothing_heavy(
    shard_set: Path, environ: dict[str, str], tmp_path: Path
) -> None:
    with started(ColdEngine(OURS), QUICKTHAW_SHARDS=str(shard_set)) as function:
        expected = function.ask(EVENT)
    for _ in range(2):  # an empty cache, and a full one
        with running(tmp_path, LOOKING, environ=environ) as function:
            assert function.ask(EVENT) == expected
            modules = set(function.ask_json("modules"))

    assert _cached(environ) == _digests(shard_set)
    assert {"boto3", "botocore", "email", "http.client", "ssl", "urllib3"} & modules == set()


@capturing
def test_a_clone_reads_on_with_connections_and_credentials_of_its_own(
    seaweed: Seaweed, environ: dict[str, str], proxy: Proxy, tmp_path: Path, make_engine: MakeEngine
) -> None:
    (tmp_path / "handler.py").write_text(READING_ON)
    profile = tmp_path / "credentials"  # the environment's are blank to the init, where a disk keeps it
    profile.write_text("[default]\naws_access_key_id = owner\naws_secret_access_key = owner-secret\n")
    environ["AWS_SHARED_CREDENTIALS_FILE"] = str(profile)
    with make_engine("handler.handle", str(tmp_path)) as engine:
        for layer, who in enumerate(("owner", "reader")):
            with started(engine, **{**environ, **seaweed.environ(who, proxy.endpoint)}) as function:
                assert function.ask_json(layer) == {"name": f"layer-00{layer}", "n_connections_captured": 0}
            assert f"Credential={who}/" in proxy.last_authorization
            shutil.rmtree(tmp_path / "cache" / "shards")  # the next layers were read ahead


def test_our_own_function_lets_go_of_s3_before_a_capture(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "handler.py").write_text(LOOKING_LAST)
    with ZygoteEngine("handler.handle", str(tmp_path)) as engine, started(engine, **environ) as function:
        assert function.ask_json() == 0


@contextmanager
def _reading(environ: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A process that reads the whole set."""
    command = [sys.executable, "-c", READING]
    with subprocess.Popen(
        command, env={**os.environ, **environ}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _assert_reads(process: subprocess.Popen[str]) -> str:
    output, errors = process.communicate(timeout=60)
    assert output == "open\nwhole\n", errors
    return errors


def test_two_processes_fetch_each_shard_once(environ: dict[str, str], shard_set: Path, proxy: Proxy) -> None:
    with _reading(environ) as first, _reading(environ) as second:
        _assert_reads(first)
        _assert_reads(second)

    fetched = {key: n for key, n in proxy.asked.items() if "manifest" not in key[0]}
    assert set(fetched.values()) == {1}
    assert len(fetched) == len(_digests(shard_set))


def test_killed_while_it_fetches_it_leaves_nothing_that_is_in_the_way(
    environ: dict[str, str], shard_set: Path, proxy: Proxy
) -> None:
    has_come = []

    def hang(exchange: proxies.Exchange) -> None:
        has_come.append(exchange.path)
        proxies.wait_for_ever(exchange)

    proxy.faults.extend([proxies.pass_on, proxies.pass_on, hang])  # manifest, embedding, the first layer
    with _reading(environ) as process:
        wait_until(lambda: has_come)
        assert any(name.endswith(".part") for name in _cached(environ))
        os.kill(process.pid, signal.SIGKILL)

    with _reading(environ) as process:
        _assert_reads(process)
    assert _cached(environ) == _digests(shard_set)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a file system")
def test_a_full_disk_keeps_nothing_and_harms_nobody(environ: dict[str, str], tmp_path: Path) -> None:
    cache = tmp_path / "small"
    cache.mkdir(mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,mode=700", "tmpfs", str(cache)], check=True)
    try:
        with _reading({**environ, "QUICKTHAW_CACHE": str(cache)}) as process:
            errors = _assert_reads(process)
        assert os.listdir(cache / "shards") == []
    finally:
        subprocess.run(["umount", str(cache)], check=True)

    assert "they are kept in memory" in errors
    assert errors.count("\n") == 1


def test_credentials_that_expire_are_told_by_name(environ: dict[str, str], proxy: Proxy) -> None:
    proxy.faults.extend([proxies.refuse(400, "ExpiredToken")] * 20)
    with _reading(environ) as process:
        _, errors = process.communicate(timeout=60)

    assert "StorageError: the credentials for S3 have expired" in errors
    assert f"s3://{BUCKET}/tiny/manifest.json" in errors
    assert environ["AWS_SECRET_ACCESS_KEY"] not in errors
