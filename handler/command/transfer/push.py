# SPDX-License-Identifier: Apache-2.0
"""`quickthaw push`: a shard set into S3. Its manifest goes last: half a set is never taken for one."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from quickthaw.handler.command.transfer.concurrently import for_each
from quickthaw.handler.command.transfer.examined import examine
from quickthaw.handler.command.transfer.uploads import Uploads
from quickthaw.layers import manifest
from quickthaw.layers.errors import OutputExistsError, SplitError
from quickthaw.layers.progress import Progress
from quickthaw.layers.storage.s3.config import S3Config
from quickthaw.layers.storage.s3.location import Location

_PERMISSIONS = "s3:GetObject, s3:PutObject, s3:ListMultipartUploadParts and s3:DeleteObject"


class PushReport(NamedTuple):
    """What a push did."""

    url: str
    name: str
    n_files: int
    n_sent: int

    def __str__(self) -> str:
        return f"{self.url} now holds {self.name}: {self.n_sent} of {self.n_files} files were sent"


def push(directory: Path, url: str, *, force: bool, progress: Progress) -> PushReport:
    """Makes `url` the shard set that is in `directory`, and whole.

    Raises: ManifestError, ShardError for a set that is not whole; OutputExistsError, SplitError.
    """
    location = Location.of(url)
    data = (directory / manifest.FILE_NAME).read_bytes()
    found = manifest.parse(data, str(directory / manifest.FILE_NAME))
    files = for_each(lambda file: examine(directory, file), found.files)  # all of them, before one is sent
    with boto3_client(url) as client:
        uploads = Uploads(client, location.bucket, location.prefix)
        _make_way(uploads, data, url, force)
        progress.start(sum(file.size_bytes for file in files))
        try:
            n_sent = sum(for_each(lambda file: uploads.put(file, progress.advance), files))
        finally:
            progress.finish()
        uploads.put_bytes(manifest.FILE_NAME, data)
    return PushReport(url, found.name, len(files), n_sent)


def _make_way(uploads: Uploads, data: bytes, url: str, force: bool) -> None:
    """Takes another set's manifest away before its shards are replaced. Raises: OutputExistsError."""
    there = uploads.get(manifest.FILE_NAME)
    if there is None or there == data:
        return
    if not force:
        raise OutputExistsError(
            "there is another shard set",
            where=url,
            advice="push to a prefix of its own: what is running reads the old one; or use --force",
        )
    uploads.delete(manifest.FILE_NAME)


@contextmanager
def boto3_client(url: str) -> Iterator[Any]:
    """boto3's, and its errors as ours. Raises: SplitError."""
    import boto3  # type: ignore[import-untyped]
    from botocore.config import Config  # type: ignore[import-untyped]
    from botocore.exceptions import BotoCoreError, ClientError  # type: ignore[import-untyped]

    # As the function reads it: with the bucket in the path, unless AWS has it.
    style = "path" if S3Config.from_env().endpoint else "auto"
    try:
        # A session of its own: the default one keeps the credentials that it found first.
        client = boto3.Session().client("s3", config=Config(s3={"addressing_style": style}))
    except BotoCoreError as exc:
        raise SplitError("cannot reach S3", where=url, found=str(exc)) from exc
    try:
        yield client
    except ClientError as exc:
        code = exc.response["Error"]["Code"]
        advice = {
            "AccessDenied": f"allow {_PERMISSIONS} on what lies there, and on the bucket "
            "s3:ListBucketMultipartUploads and s3:ListBucket",
            "403": f"allow {_PERMISSIONS} on what lies there",
            "NoSuchBucket": "make the bucket first",
        }.get(code)
        failure = f"S3 refuses {exc.operation_name}"
        raise SplitError(failure, where=url, found=code, advice=advice) from exc
    except BotoCoreError as exc:
        raise SplitError("cannot push to S3", where=url, found=str(exc), advice="push again") from exc
    finally:
        client.close()
