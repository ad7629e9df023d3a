# SPDX-License-Identifier: Apache-2.0
"""A real S3 server on this machine: SeaweedFS, with an owner, and a reader of one bucket."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from tests.contract.emulator import free_ports
from tests.contract.fronts import wait_until

BUCKET = "models"


class Seaweed:
    """A server that listens, and who may ask it for what; `client` is boto3's, of the owner."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.client: Any = boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id="owner",
            aws_secret_access_key="owner-secret",
            region_name="eu-west-1",
            config=Config(s3={"addressing_style": "path"}),
        )

    @property
    def endpoint(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.port}"

    def environ(self, name: str = "owner", endpoint: str | None = None) -> dict[str, str]:
        """What the environment of `owner`, or of `reader`, who may read BUCKET alone, says of S3."""
        return {
            "AWS_ACCESS_KEY_ID": name,
            "AWS_SECRET_ACCESS_KEY": f"{name}-secret",
            "AWS_ENDPOINT_URL": endpoint or self.endpoint,
            "AWS_REGION": "eu-west-1",
        }

    def put(self, key: str, data: bytes) -> None:
        """Put an object into BUCKET."""
        self.client.put_object(Bucket=BUCKET, Key=key, Body=data)

    def get(self, key: str) -> bytes:
        """What an object in BUCKET holds."""
        return bytes(self.client.get_object(Bucket=BUCKET, Key=key)["Body"].read())

    def put_all(self, directory: Path, prefix: str) -> str:
        """Put a directory's files there; return the URL."""
        for path in directory.iterdir():
            self.client.upload_file(str(path), BUCKET, f"{prefix}/{path.name}")
        return f"s3://{BUCKET}/{prefix}"


@contextmanager
def serving(directory: Path) -> Iterator[Seaweed]:
    """Run a server, with BUCKET in it, until the end of the block."""
    identities = directory / "identities.json"
    identities.write_text(
        json.dumps(
            {"identities": [_identity("owner", "Admin"), _identity("reader", f"Read:{BUCKET}")]},
        )
    )
    names = ("master", "volume", "filer", "s3")
    ports = free_ports(2 * len(names))
    arguments = [f"-{name}.port={port}" for name, port in zip(names, ports[::2], strict=True)]
    arguments += [f"-{name}.port.grpc={port}" for name, port in zip(names, ports[1::2], strict=True)]
    command = [
        str(Path(sys.executable).with_name("weed")),
        *("server", f"-dir={directory}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-s3", *arguments),
        *("-s3.port.iceberg=0", "-s3.port.lance=0", f"-s3.config={identities}", "-volume.max=20"),
        *(f"-filer.localSocket={directory}/filer.sock", f"-s3.localSocket={directory}/s3.sock"),
        *("-master.telemetry=false", "-master.volumeSizeLimitMB=1024"),
    ]
    with (directory / "weed.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    server = Seaweed(ports[6])
    try:
        wait_until(lambda: _has_bucket(server))
        yield server
    finally:
        server.client.close()
        process.kill()  # it would take its time to tell others that it goes
        process.wait()


def _identity(name: str, action: str) -> dict[str, Any]:
    credentials = [{"accessKey": name, "secretKey": f"{name}-secret"}]
    return {"name": name, "credentials": credentials, "actions": [action]}


def _has_bucket(server: Seaweed) -> bool:
    """Whether it is up so far that a bucket can be made, and it is made."""
    connection = HTTPConnection("127.0.0.1", server.port, timeout=5.0)
    try:
        connection.request("GET", "/healthz")
        if connection.getresponse().status != 200:
            return False
    except OSError:
        return False
    finally:
        connection.close()
    client = server.client
    with suppress(client.exceptions.BucketAlreadyExists, client.exceptions.BucketAlreadyOwnedByYou):
        client.create_bucket(Bucket=BUCKET)
    try:
        client.put_object(Bucket=BUCKET, Key="up", Body=b"up")
    except client.exceptions.ClientError:  # it has a bucket, and nowhere yet to put an object
        return False
    return True
