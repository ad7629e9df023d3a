# SPDX-License-Identifier: Apache-2.0
"""A bucket and the connections to it: asked for one object, once; what goes wrong is a ShardError."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import BoundedSemaphore
from urllib.parse import quote

from quickthaw.layers.errors import ShardError, ShardMissingError, StorageError, StorageTimeoutError
from quickthaw.layers.storage.s3.config import S3Config
from quickthaw.layers.storage.s3.connection import Address, Answer, Connection
from quickthaw.layers.storage.s3.credentials import CredentialChain, CredentialsMissingError
from quickthaw.layers.storage.s3.patience import Patience
from quickthaw.layers.storage.s3.refusal import EXPIRED, Asked, field_of, refusal
from quickthaw.layers.storage.s3.signature import signed

_MAX_CONNECTIONS = 16  # S3 gives each some 80 MB/s, and Lambda takes no more than about a GB/s
_SUCCESS = (200, 206)


class Bucket:
    """Asked from several threads at once. Connections are kept until `release`."""

    def __init__(self, name: str, config: S3Config, patience: Patience) -> None:
        """Raises: StorageError for an endpoint that is none."""
        self.name = name
        self._config = config
        self._patience = patience
        self._credentials = CredentialChain()
        self._idle: list[Connection] = []
        self._room = BoundedSemaphore(_MAX_CONNECTIONS)
        self._settle_in(self._credentials.region(config))

    @contextmanager
    def get(self, key: str, headers: Mapping[str, str], deadline_s: float) -> Iterator[Answer]:
        """The answer to one request, a success; the body is read inside of the block, and may end it.

        Raises: ShardError, one of its kinds; StorageError where the next time may be better.
        """
        asked = Asked(self.name, key)
        with self._room:
            connection = None
            try:
                connection, answer = self._ask(asked, headers, deadline_s)
                if answer.status not in _SUCCESS:
                    raise self._refusal(asked, answer)
                yield answer
                if answer.is_keeping and answer.left_bytes == 0:
                    self._idle.append(connection)
                    connection = None
            except OSError as exc:
                raise _broken(asked, exc) from exc
            finally:
                if connection is not None:
                    connection.close()

    def release(self) -> None:
        """Lets go of the connections that nobody is using, and of credentials that were looked up."""
        self._credentials.forget()
        self.__del__()

    def __del__(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def _ask(self, asked: Asked, headers: Mapping[str, str], deadline_s: float) -> tuple[Connection, Answer]:
        path = quote(self._path_prefix + asked.key, safe="/-_.~")
        try:
            credentials = self._credentials.get()
        except CredentialsMissingError as exc:
            raise ShardMissingError(
                "cannot ask S3 for an object",
                where=str(asked),
                found=str(exc),
                advice="give the function a role, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; "
                "what else boto3 knows is found where botocore is installed",
            ) from exc
        headers = signed(path, {"host": self._address.name, **headers}, credentials, self._region)
        while True:
            connection = self._take()
            try:
                return connection, connection.get(path, headers, deadline_s)
            except OSError as exc:
                connection.close()
                # One that was kept may have ended long ago; that is no failure of the storage's.
                if not connection.was_used or isinstance(exc, TimeoutError):
                    raise

    def _take(self) -> Connection:
        try:
            return self._idle.pop()
        except IndexError:
            return Connection(self._address, self._patience.connect_s, self._patience.silence_s)

    def _refusal(self, asked: Asked, answer: Answer) -> ShardError:
        document = answer.refusal()
        code, region = field_of(document, "Code"), answer.headers.get("x-amz-bucket-region", "")
        region = region or field_of(document, "Region") or self._region
        if region != self._region:  # S3 says where the bucket is, and is to be asked there
            self._settle_in(region)
            return StorageError("the bucket lies in another region", where=str(asked), found=region)
        if code in EXPIRED:
            self._credentials.forget()
        return refusal(asked, answer.status, code)

    def _settle_in(self, region: str) -> None:
        """Addresses the bucket as the endpoint or, on AWS, its region wants it."""
        self._region, self._path_prefix = region, f"/{self.name}/"
        endpoint = self._config.endpoint
        if endpoint is None:
            domain = f"s3.{region}.amazonaws.com{'.cn' if region.startswith('cn-') else ''}"
            is_label = "." not in self.name  # a certificate's * stands for one
            endpoint = f"https://{self.name}.{domain}" if is_label else f"https://{domain}"
            self._path_prefix = "/" if is_label else self._path_prefix
        try:
            self._address = Address.of(endpoint, self._config.ca_bundle)
        except (OSError, ValueError) as exc:
            raise StorageError("cannot reach S3", where=endpoint, found=str(exc)) from exc


def _broken(asked: Asked, exc: OSError) -> StorageError:
    kind = StorageTimeoutError if isinstance(exc, TimeoutError) else StorageError
    return kind("S3 does not give an object", where=str(asked), found=exc.strerror or str(exc))
