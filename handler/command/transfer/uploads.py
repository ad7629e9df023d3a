# SPDX-License-Identifier: Apache-2.0
"""Puts files into a bucket, in parts where they are large; what was put before is not put again.

A part that is on its way when the process is killed is lost, all before it are not: S3 keeps them under the
unfinished upload, which the next try goes on with.
"""

import os
from collections.abc import Callable, Mapping
from typing import Any

from quickthaw.handler.command.transfer.examined import Examined, Part
from quickthaw.layers.errors import SplitError

Advance = Callable[[int], object]


class Uploads:
    """To one prefix of a bucket."""

    def __init__(self, client: Any, bucket: str, prefix: str) -> None:
        self._client = client
        self._bucket = bucket
        self._prefix = prefix

    def put(self, file: Examined, advance: Advance) -> bool:
        """Puts the file unless it is there; whether it was not. Raises: SplitError, ClientError."""
        asked = self._asked(file.name)
        if self._is_there(asked, file):
            advance(file.size_bytes)
            return False
        if len(file.parts) == 1:
            self._client.put_object(
                **asked, Body=_read(file, file.parts[0]), ChecksumSHA256=file.parts[0].checksum
            )
            advance(file.size_bytes)
        else:
            self._put_in_parts(asked, file, advance)
        if not self._is_there(asked, file):
            raise SplitError(
                "S3 has other bytes than were sent",
                where=f"s3://{self._bucket}/{asked['Key']}",
                advice="push again; a bucket must not change what is put into it",
            )
        return True

    def get(self, name: str) -> bytes | None:
        """A small object; None if it is not there. Raises: ClientError."""
        try:
            return bytes(self._client.get_object(**self._asked(name))["Body"].read())
        except self._client.exceptions.NoSuchKey:
            return None

    def put_bytes(self, name: str, data: bytes) -> None:
        """A small object. Raises: ClientError."""
        self._client.put_object(**self._asked(name), Body=data)

    def delete(self, name: str) -> None:
        """Raises: ClientError."""
        self._client.delete_object(**self._asked(name))

    def _asked(self, name: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": self._prefix + name}

    def _is_there(self, asked: Mapping[str, str], file: Examined) -> bool:
        try:
            return file.is_told_by(self._client.head_object(**asked, ChecksumMode="ENABLED"))
        except self._client.exceptions.ClientError as exc:
            if exc.response["ResponseMetadata"]["HTTPStatusCode"] == 404:
                return False
            raise

    def _put_in_parts(self, asked: Mapping[str, str], file: Examined, advance: Advance) -> None:
        upload, there = self._unfinished(asked, file)
        if upload is None:
            upload = self._client.create_multipart_upload(**asked, ChecksumAlgorithm="SHA256")["UploadId"]
        told = []
        for number, part in enumerate(file.parts, 1):
            etag = there.get(number)
            if etag is None:
                sent = {"Body": _read(file, part), "ChecksumSHA256": part.checksum}
                answer = self._client.upload_part(**asked, UploadId=upload, PartNumber=number, **sent)
                etag = answer["ETag"]
            told.append({"PartNumber": number, "ETag": etag, "ChecksumSHA256": part.checksum})
            advance(part.size_bytes)
        self._client.complete_multipart_upload(**asked, UploadId=upload, MultipartUpload={"Parts": told})

    def _unfinished(self, asked: Mapping[str, str], file: Examined) -> tuple[str | None, dict[int, str]]:
        """An upload of this object that was begun, and the ETags of its parts that are this file's."""
        bucket, key = asked["Bucket"], asked["Key"]
        found = self._client.list_multipart_uploads(Bucket=bucket, Prefix=key).get("Uploads", [])
        begun = [each["UploadId"] for each in found if each["Key"] == key]
        if not begun:
            return None, {}
        pages = self._client.get_paginator("list_parts").paginate(**asked, UploadId=begun[-1])
        parts = [part for page in pages for part in page.get("Parts", [])]
        numbered = dict(enumerate(file.parts, 1))
        return begun[-1], {
            each["PartNumber"]: each["ETag"]
            for each in parts
            if each["PartNumber"] in numbered and numbered[each["PartNumber"]].is_told_by(each)
        }


def _read(file: Examined, part: Part) -> bytes:
    descriptor = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(descriptor, part.size_bytes, part.begin)
    finally:
        os.close(descriptor)
