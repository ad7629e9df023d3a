# SPDX-License-Identifier: Apache-2.0
"""S3 that fails in every way it can, between a real server and the reader: a clear error, or success."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from quickthaw.layers.errors import (
    ManifestError,
    ShardDamagedError,
    ShardError,
    ShardMissingError,
    ShardReplacedError,
    ShardTruncatedError,
    StorageError,
    StorageTimeoutError,
)
from quickthaw.layers.shard_set import ShardSet
from quickthaw.layers.storage.cache import Cache
from quickthaw.layers.storage.s3.config import S3Config
from quickthaw.layers.storage.s3.patience import Patience
from quickthaw.layers.storage.s3.storage import S3
from tests import s3_proxy as proxies
from tests import shards
from tests.contract.fronts import TIMEOUT_S
from tests.s3_proxy import Fault, Proxy
from tests.seaweed import BUCKET, Seaweed

DATA = os.urandom(1 << 20) * 5 + b"end"  # six ranges
DIGEST = hashlib.sha256(DATA).hexdigest()
NAME = "layer-000.safetensors"
OpenS3 = Callable[..., S3]
IMPATIENT = Patience(connect_s=2.0, silence_s=0.3, give_up_s=5.0, n_failures=3, pause_s=0.01)


@pytest.fixture
def proxy(seaweed: Seaweed, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """A proxy before the server, which the environment takes for S3."""
    with proxies.between(seaweed.port) as proxy:
        for name, value in seaweed.environ(endpoint=proxy.endpoint).items():
            monkeypatch.setenv(name, value)
        yield proxy


@pytest.fixture
def open_s3(seaweed: Seaweed, proxy: Proxy, tmp_path: Path) -> Iterator[OpenS3]:
    """Opens a storage with one object in it."""
    seaweed.put(f"faults/{NAME}", DATA)
    opened: list[S3] = []

    def open_s3(endpoint: str = proxy.endpoint, **patience: float) -> S3:
        config = S3Config(endpoint, "eu-west-1", None)
        cache = Cache(str(tmp_path / "cache"), None)
        opened.append(S3(f"s3://{BUCKET}/faults/", cache, config, IMPATIENT._replace(**patience)))
        return opened[-1]

    yield open_s3
    for storage in opened:
        storage.release()


@pytest.fixture
def storage(open_s3: OpenS3) -> S3:
    """Such a storage, which soon gives up."""
    return open_s3()


def _read(storage: S3, size_bytes: int = len(DATA)) -> bytes:
    with storage.open(NAME, size_bytes, DIGEST).file as file:
        return file.read()


def _assert_nothing_is_left(tmp_path: Path) -> None:
    assert os.listdir(tmp_path / "cache" / "shards") == []


@pytest.mark.parametrize(
    "fault",
    [
        proxies.refuse(500, "InternalError"),
        proxies.refuse(503, "SlowDown"),
        proxies.refuse(400, "ExpiredToken"),
        proxies.half_a_body,
        proxies.reset,
        proxies.wait_for_ever,
        proxies.not_http,
        proxies.with_another(content_range=f"bytes 7-9/{len(DATA)}"),
    ],
)
def test_what_fails_a_few_times_is_asked_for_again(storage: S3, proxy: Proxy, fault: Fault) -> None:
    proxy.faults.extend([fault, proxies.pass_on, fault])

    assert _read(storage) == DATA


@pytest.mark.parametrize(
    ("fault", "kind", "told"),
    [
        (proxies.refuse(500, "InternalError"), StorageError, "500 InternalError"),
        (proxies.refuse(503, "SlowDown"), StorageError, "503 SlowDown"),
        (proxies.refuse(400, "ExpiredToken"), StorageError, "credentials for S3 have expired"),
        (proxies.reset, StorageError, "no answer"),
        (proxies.not_http, StorageError, "no HTTP"),
        (proxies.wait_for_ever, StorageTimeoutError, "timed out"),
        (proxies.refuse(403, "AccessDenied"), ShardMissingError, f"arn:aws:s3:::{BUCKET}/faults/{NAME}"),
        (proxies.refuse(403, "InvalidAccessKeyId"), ShardMissingError, "AWS_ACCESS_KEY_ID"),
        (proxies.refuse(404, "NoSuchKey"), ShardMissingError, "no such object"),
        (proxies.refuse(404, "NoSuchBucket"), ShardMissingError, "no such bucket"),
        (proxies.refuse(412, "PreconditionFailed"), ShardReplacedError, "replaced while it was read"),
        (proxies.with_another(content_range="bytes 0-1048575/99"), ShardTruncatedError, "found 99 bytes"),
        (proxies.with_another(content_range="bytes 0-9/*"), ShardTruncatedError, "wrong size"),
    ],
)
def test_what_goes_on_failing_is_told_and_over_when_it_is_over(
    storage: S3, proxy: Proxy, tmp_path: Path, fault: Fault, kind: type[ShardError], told: str
) -> None:
    proxy.faults.extend([fault] * 30)

    with pytest.raises(ShardError) as caught:
        _read(storage)

    assert type(caught.value) is kind
    assert told in str(caught.value)
    assert f"s3://{BUCKET}/faults/{NAME}" in str(caught.value)
    assert "AKIA" not in str(caught.value)
    _assert_nothing_is_left(tmp_path)
    proxy.faults.clear()
    assert _read(storage) == DATA


def test_a_body_that_hardly_comes_takes_too_long(open_s3: OpenS3, proxy: Proxy, tmp_path: Path) -> None:
    storage = open_s3(give_up_s=0.5)
    proxy.faults.append(proxies.one_byte_after_the_other)

    with pytest.raises(StorageTimeoutError, match="takes too long"):
        _read(storage)
    _assert_nothing_is_left(tmp_path)


def test_nobody_listens(open_s3: OpenS3) -> None:
    storage = open_s3("http://127.0.0.1:1")

    with pytest.raises(StorageError, match=f"s3://{BUCKET}/faults/{NAME}.*refused"):
        _read(storage)


def test_half_bodies_alone_still_make_a_whole(open_s3: OpenS3, proxy: Proxy) -> None:
    storage = open_s3(silence_s=TIMEOUT_S, give_up_s=TIMEOUT_S)
    proxy.faults.extend([proxies.half_a_body] * 20)

    assert _read(storage) == DATA


def test_an_object_that_is_replaced_while_it_is_read_is_refused(
    open_s3: OpenS3, proxy: Proxy, seaweed: Seaweed, tmp_path: Path
) -> None:
    storage = open_s3(silence_s=TIMEOUT_S, give_up_s=TIMEOUT_S)
    is_replaced = threading.Event()

    def replace(exchange: proxies.Exchange) -> None:
        proxies.pass_on(exchange)
        seaweed.put(f"faults/{NAME}", DATA[::-1])
        is_replaced.set()

    def reset_later(exchange: proxies.Exchange) -> None:
        assert is_replaced.wait(TIMEOUT_S)
        proxies.reset(exchange)

    # What is asked for again after the change is asked for as what it was: If-Match.
    proxy.faults.extend([replace, *[reset_later] * 5])

    with pytest.raises(ShardReplacedError, match=f"s3://{BUCKET}/faults/{NAME}"):
        _read(storage)
    _assert_nothing_is_left(tmp_path)


def test_answers_of_two_objects_are_not_put_together(storage: S3, proxy: Proxy, tmp_path: Path) -> None:
    proxy.faults.extend([proxies.pass_on, proxies.with_another(etag='"another"')])

    with pytest.raises(ShardReplacedError, match="ETag"):
        _read(storage)
    _assert_nothing_is_left(tmp_path)


def test_an_object_of_another_size_is_refused(storage: S3) -> None:
    with pytest.raises(ShardTruncatedError, match=f"expected 9 bytes, found {len(DATA)} bytes"):
        _read(storage, 9)


def test_a_kept_connection_that_has_ended_is_no_failure(open_s3: OpenS3, proxy: Proxy) -> None:
    storage = open_s3(n_failures=1)

    def end(exchange: proxies.Exchange) -> None:
        proxies.pass_on(exchange)
        exchange.close_connection = True  # and does not say so

    proxy.faults.append(end)
    for _ in range(3):
        assert storage.read(NAME, len(DATA)) == DATA


def test_the_region_that_s3_names_is_asked(storage: S3, proxy: Proxy) -> None:
    def elsewhere(exchange: proxies.Exchange) -> None:
        body = b"<Error><Code>AuthorizationHeaderMalformed</Code><Region>us-east-1</Region></Error>"
        assert "/eu-west-1/" in exchange.headers["authorization"]
        exchange.send_response(400)
        exchange.send_header("content-length", str(len(body)))
        exchange.end_headers()
        exchange.wfile.write(body)

    def here(exchange: proxies.Exchange) -> None:
        assert "/us-east-1/" in exchange.headers["authorization"]
        proxies.pass_on(exchange)

    proxy.faults.extend([elsewhere, here])
    assert storage.read(NAME, len(DATA)) == DATA


def test_the_real_server_says_what_it_refuses(seaweed: Seaweed, monkeypatch: pytest.MonkeyPatch) -> None:
    seaweed.client.create_bucket(Bucket="secret")
    seaweed.client.put_object(Bucket="secret", Key="set/manifest.json", Body=b"{}")
    refused = {
        ("reader", "s3://secret/set"): "s3:GetObject on arn:aws:s3:::secret/set/manifest.json",
        ("owner", "s3://secret/other"): "no such object: s3://secret/other/manifest.json",
        ("owner", "s3://nothing/set"): "no such bucket: s3://nothing/set/manifest.json",
        ("nobody", "s3://secret/set"): "S3 does not accept these credentials",
    }
    for (who, location), told in refused.items():
        for name, value in seaweed.environ(who).items():
            monkeypatch.setenv(name, value)
        with pytest.raises(ShardMissingError, match=told):
            ShardSet.open(location, shards.config(Path("/nonexistent")))


class TestShardSet:
    """A whole set, asked for layer by layer."""

    @pytest.fixture
    def location(self, seaweed: Seaweed, tmp_path: Path) -> str:
        return seaweed.put_all(shards.make(tmp_path), f"set-{tmp_path.name}")

    def test_damaged_bytes_are_computed_with_by_nobody_and_fetched_anew(
        self, location: str, proxy: Proxy, seaweed: Seaweed, tmp_path: Path
    ) -> None:
        shard_set = ShardSet.open(location, shards.config(tmp_path))
        key = f"{location.removeprefix(f's3://{BUCKET}/')}/{NAME}"
        right = seaweed.get(key)
        seaweed.put(key, right[:-1] + bytes((right[-1] ^ 1,)))

        with pytest.raises(ShardDamagedError, match=f"{location}/{NAME}"):
            shard_set.layer(0)
        seaweed.put(key, right)
        assert shard_set.layer(0).name == "layer-000"
        assert proxy.asked

    def test_a_replaced_set_is_refused(
        self, location: str, proxy: Proxy, seaweed: Seaweed, tmp_path: Path
    ) -> None:
        shard_set = ShardSet.open(location, shards.config(tmp_path))
        key = f"{location.removeprefix(f's3://{BUCKET}/')}/{NAME}"
        size_bytes = shard_set.manifest.shards[1].size_bytes
        seaweed.put(key, bytes(size_bytes))

        with pytest.raises(ShardDamagedError, match=f"{location}/{NAME}"):
            shard_set.layer(0)
        seaweed.put(key, b"short")
        with pytest.raises(ShardTruncatedError, match=f"{location}/{NAME}"):
            shard_set.layer(0)
        assert proxy.asked

    def test_half_a_manifest_is_none(self, location: str, proxy: Proxy, tmp_path: Path) -> None:
        proxy.faults.append(proxies.damaged)
        with pytest.raises(ManifestError, match=location):
            ShardSet.open(location, shards.config(tmp_path))

        proxy.faults.append(proxies.half_a_body)
        assert ShardSet.open(location, shards.config(tmp_path)).manifest.name == "source"
