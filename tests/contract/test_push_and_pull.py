# SPDX-License-Identifier: Apache-2.0
"""`quickthaw push` and `pull`, with a real server between them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from quickthaw.handler import cli
from quickthaw.handler.command.transfer import examined
from tests import s3_proxy as proxies
from tests import shards
from tests.contract.fronts import wait_until
from tests.s3_proxy import Exchange, Proxy
from tests.seaweed import BUCKET, Seaweed

QUICKTHAW = str(Path(sys.executable).with_name("quickthaw"))


@pytest.fixture(autouse=True)
def _owner(seaweed: Seaweed, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in seaweed.environ().items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def proxy(seaweed: Seaweed, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    with proxies.between(seaweed.port) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
        yield proxy


@pytest.fixture
def shard_set(tmp_path: Path) -> Path:
    return shards.make_chat(tmp_path)  # with a tokenizer: five files and the manifest


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"s3://{BUCKET}/{tmp_path.name}"


def _names(seaweed: Seaweed, url: str) -> set[str]:
    prefix = url.removeprefix(f"s3://{BUCKET}/") + "/"
    found = seaweed.client.list_objects_v2(Bucket=BUCKET, Prefix=prefix).get("Contents", [])
    return {each["Key"].removeprefix(prefix) for each in found}


def _bytes(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_what_is_pulled_is_what_was_pushed(
    shard_set: Path, url: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    n_files = len(_bytes(shard_set)) - 1
    for n_moved in (n_files, 0):  # the second time nothing is left to do
        assert cli.main(["push", str(shard_set), url]) == 0
        assert f"{n_moved} of {n_files} files were sent" in capfd.readouterr().out
        assert cli.main(["pull", url, str(out)]) == 0
        assert f"{n_moved} of {n_files} files were fetched" in capfd.readouterr().out
        assert _bytes(out) == _bytes(shard_set)
    assert cli.main(["inspect", url, "--verify"]) == 0
    assert "every file has the bytes that the manifest records" in capfd.readouterr().out


def test_a_set_that_is_not_whole_is_not_pushed(
    seaweed: Seaweed, shard_set: Path, url: str, capfd: pytest.CaptureFixture[str]
) -> None:
    shards.flip_bit(shard_set / "layer-001.safetensors")
    assert cli.main(["push", str(shard_set), url]) == 65
    assert "layer-001.safetensors: expected SHA-256" in capfd.readouterr().err
    (shard_set / "layer-001.safetensors").unlink()
    assert cli.main(["push", str(shard_set), url]) == 66
    (shard_set / "manifest.json").unlink()
    assert cli.main(["push", str(shard_set), url]) == 65

    assert _names(seaweed, url) == set()


def test_another_set_is_replaced_only_when_told_to(
    shard_set: Path, url: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert cli.main(["push", str(shards.make(tmp_path / "other")), url]) == 0
    assert cli.main(["pull", url, str(out)]) == 0

    assert cli.main(["push", str(shard_set), url]) == 73
    assert "push to a prefix of its own" in capfd.readouterr().err
    assert cli.main(["push", str(shard_set), url, "--force"]) == 0

    assert cli.main(["pull", url, str(out)]) == 73
    assert "output holds another shard set" in capfd.readouterr().err
    assert cli.main(["pull", url, str(out), "--force"]) == 0
    assert _bytes(shard_set).items() <= _bytes(out).items()


def test_a_folder_that_is_no_shard_set_is_left_alone(
    shard_set: Path, url: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["push", str(shard_set), url]) == 0
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter.txt").touch()

    assert cli.main(["pull", url, str(tmp_path / "home"), "--force"]) == 73
    assert "is no shard set" in capfd.readouterr().err
    assert os.listdir(tmp_path / "home") == ["letter.txt"]


def test_a_push_that_is_killed_leaves_no_set_and_is_gone_on_with(
    seaweed: Seaweed, shard_set: Path, url: str, proxy: Proxy, capfd: pytest.CaptureFixture[str]
) -> None:
    is_last = []

    def hold_the_manifest(exchange: Exchange) -> None:
        proxy.faults.append(hold_the_manifest)
        if exchange.command == "PUT" and exchange.path.endswith("manifest.json"):
            is_last.append(True)
            proxies.wait_for_ever(exchange)
        else:
            proxies.pass_on(exchange)

    proxy.faults.append(hold_the_manifest)
    with subprocess.Popen([QUICKTHAW, "push", shard_set, url], env=os.environ) as push:
        wait_until(lambda: is_last)
        os.kill(push.pid, signal.SIGKILL)
    proxy.faults.clear()
    assert "manifest.json" not in _names(seaweed, url)
    assert cli.main(["inspect", url]) == 66

    assert cli.main(["push", str(shard_set), url]) == 0
    assert "now holds tiny: 0 of" in capfd.readouterr().out


def test_an_unfinished_upload_is_gone_on_with(
    seaweed: Seaweed, shard_set: Path, url: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    part_bytes = 5 << 20  # the least that S3 takes
    monkeypatch.setattr(examined, "PART_BYTES", part_bytes)
    data = os.urandom(2 * part_bytes + 1)
    path = shards.add_tokenizer(shard_set, data)
    asked = {"Bucket": BUCKET, "Key": f"{url.removeprefix(f's3://{BUCKET}/')}/{path.name}"}
    upload = seaweed.client.create_multipart_upload(**asked)["UploadId"]
    asked["UploadId"] = upload
    seaweed.client.upload_part(**asked, PartNumber=1, Body=data[:part_bytes])
    seaweed.client.upload_part(**asked, PartNumber=2, Body=b"of another file")
    sent = []

    def note(exchange: Exchange) -> None:
        proxy.faults.append(note)
        if exchange.command == "PUT" and upload in exchange.path:
            sent.append(int(exchange.path.partition("partNumber=")[2].partition("&")[0]))
        proxies.pass_on(exchange)

    proxy.faults.append(note)
    assert cli.main(["push", str(shard_set), url]) == 0

    assert sent == [2, 3]
    assert cli.main(["inspect", url, "--verify"]) == 0


def test_a_pull_that_is_killed_leaves_no_set_and_is_gone_on_with(
    shard_set: Path, url: str, proxy: Proxy, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["push", str(shard_set), url]) == 0
    out = tmp_path / "out"
    held = []

    def hold_a_layer(exchange: Exchange) -> None:
        proxy.faults.append(hold_a_layer)
        if exchange.path.endswith("layer-001.safetensors"):
            held.append(True)
            proxies.wait_for_ever(exchange)
        else:
            proxies.pass_on(exchange)

    proxy.faults.append(hold_a_layer)
    n_files = len(_bytes(shard_set)) - 1
    with subprocess.Popen([QUICKTHAW, "pull", url, out], env=os.environ) as pull:
        wait_until(lambda: held and sum(name[0] != "." for name in os.listdir(out)) == n_files - 1)
        os.kill(pull.pid, signal.SIGKILL)
    proxy.faults.clear()
    assert cli.main(["inspect", str(out)]) == 65
    capfd.readouterr()

    assert cli.main(["pull", url, str(out)]) == 0
    assert f"1 of {n_files} files were fetched" in capfd.readouterr().out
    assert _bytes(out) == _bytes(shard_set)


def test_damaged_bytes_are_not_pulled(
    shard_set: Path, url: str, seaweed: Seaweed, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["push", str(shard_set), url]) == 0
    key = f"{url.removeprefix(f's3://{BUCKET}/')}/layer-000.safetensors"
    seaweed.put(key, bytes((shard_set / "layer-000.safetensors").stat().st_size))

    assert cli.main(["pull", url, str(tmp_path / "out")]) == 65
    assert f"{url}/layer-000.safetensors: expected SHA-256" in capfd.readouterr().err
    assert not {"layer-000.safetensors", "manifest.json"} & set(os.listdir(tmp_path / "out"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a file system")
def test_a_full_disk_is_said(
    shard_set: Path, url: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["push", str(shard_set), url]) == 0
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], check=True)
    try:
        assert cli.main(["pull", url, str(disk / "out")]) == 73
        assert "no room for the shard set" in capfd.readouterr().err
        assert "manifest.json" not in os.listdir(disk / "out")
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.parametrize(
    ("who", "where", "told"),
    [
        ("reader", f"s3://{BUCKET}/theirs", "allow s3:GetObject, s3:PutObject"),
        ("owner", "s3://nothing/theirs", "make the bucket first"),
        ("nobody", f"s3://{BUCKET}/theirs", "InvalidAccessKeyId"),
    ],
)
def test_what_s3_refuses_is_said(
    seaweed: Seaweed,
    shard_set: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    who: str,
    where: str,
    told: str,
) -> None:
    for name, value in seaweed.environ(who).items():
        monkeypatch.setenv(name, value)

    assert cli.main(["push", str(shard_set), where]) == 73
    error = capfd.readouterr().err
    assert told in error
    assert where in error


def test_a_directory_is_no_url(shard_set: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["push", str(shard_set), "bucket/prefix"])
    assert "expected s3://bucket/prefix, found bucket/prefix" in capfd.readouterr().err
