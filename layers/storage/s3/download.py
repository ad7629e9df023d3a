# SPDX-License-Identifier: Apache-2.0
"""Fetches an object into a file: ranges of it, several at once, each asked for again until it is whole.

All ranges must be of one object. The first answer's ETag is asked of all later ones (If-Match), and those
that were under way meanwhile are compared with it: nobody waits a round trip to learn it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from threading import Thread

from quickthaw.layers.errors import ShardError, StorageError
from quickthaw.layers.storage.s3.bucket import Bucket
from quickthaw.layers.storage.s3.connection import Answer
from quickthaw.layers.storage.s3.patience import Attempts, Patience
from quickthaw.layers.storage.s3.refusal import Asked, replaced, wrong_size

Range = tuple[int, int]  # begin, end

_DEPTH = 8  # ranges at once
_LARGEST_RANGE_BYTES = 8 << 20
_SMALLEST_RANGE_BYTES = 1 << 20
_BUFFER_BYTES = 1 << 20  # written at once: into the page cache from here is faster than received into a map


def ranges(size_bytes: int, depth: int = _DEPTH) -> list[Range]:
    """An object in ranges, enough for each thread to have one, where that makes them not too small."""
    per_thread = -(-size_bytes // depth)
    step = min(max(per_thread, _SMALLEST_RANGE_BYTES), _LARGEST_RANGE_BYTES)
    return [(begin, min(begin + step, size_bytes)) for begin in range(0, size_bytes, step)]


class Download:
    """One object on its way into one file."""

    def __init__(self, bucket: Bucket, key: str, size_bytes: int, patience: Patience) -> None:
        self._bucket = bucket
        self._asked = Asked(bucket.name, key)
        self._size_bytes = size_bytes
        self._patience = patience
        self._etag: str | None = None
        self._error: BaseException | None = None

    def into(self, descriptor: int) -> None:
        """Writes every byte of the object, in any order. Returns when no thread is at work any more.

        Raises: ShardError, one of its kinds.
        """
        todo = ranges(self._size_bytes)
        queue = iter(todo)  # next() on a list iterator is atomic under the GIL: each range is taken once
        threads: list[Thread] = []
        with suppress(RuntimeError):  # no more threads can be had: those that there are do it
            for _ in range(min(len(todo), _DEPTH) - 1):
                thread = Thread(target=self._work, args=(queue, descriptor), name="quickthaw-s3", daemon=True)
                thread.start()
                threads.append(thread)
        self._work(queue, descriptor)
        for thread in threads:
            thread.join()
        if self._error is not None:
            raise self._error

    def _work(self, queue: Iterator[Range], descriptor: int) -> None:
        """Fetches ranges until there are none, or one has failed: the first error is everybody's."""
        buffer = memoryview(bytearray(_BUFFER_BYTES))
        try:
            for begin, end in queue:
                if self._error is not None:
                    return
                self._fetch(begin, end, descriptor, buffer)
        except BaseException as exc:
            self._error = self._error or exc

    def _fetch(self, begin: int, end: int, descriptor: int, buffer: memoryview) -> None:
        """One range, from where an attempt broke off again."""
        attempts = Attempts(self._patience)
        while begin < end:
            headers = {"range": f"bytes={begin}-{end - 1}"}
            if self._etag is not None:
                headers["if-match"] = self._etag
            position = begin
            try:
                with self._bucket.get(self._asked.key, headers, attempts.deadline_s) as answer:
                    self._check(answer, begin, end)
                    while position < end:
                        n_bytes = answer.readinto(buffer[: end - position])
                        _write(descriptor, buffer[:n_bytes], position, str(self._asked))
                        position += n_bytes
            except StorageError as exc:
                attempts.wait(exc, has_gained=position > begin)
            begin = position

    def _check(self, answer: Answer, begin: int, end: int) -> None:
        """Is this the range that was asked for, of the object that all others are of?"""
        etag = answer.headers.get("etag")
        self._etag = self._etag or etag
        if etag != self._etag:
            raise replaced(self._asked, f"ETag {etag}, before {self._etag}")
        span, _, total = answer.headers.get("content-range", "").partition("/")
        if answer.status == 200 and answer.left_bytes == self._size_bytes == end - begin:
            return  # a server that knows no ranges, asked for everything
        if total != str(self._size_bytes):
            raise wrong_size(self._asked, f"{self._size_bytes} bytes", f"{total or answer.left_bytes} bytes")
        if answer.status != 206 or span != f"bytes {begin}-{end - 1}" or answer.left_bytes != end - begin:
            raise StorageError(
                "S3 gives another range than was asked for",
                where=str(self._asked),
                expected=f"bytes {begin}-{end - 1}",
                found=f"{answer.status} {span}",
            )


def _write(descriptor: int, data: memoryview, position: int, where: str) -> None:
    try:
        while data:
            written = os.pwrite(descriptor, data, position)
            data, position = data[written:], position + written
    except OSError as exc:
        raise ShardError("cannot keep what S3 gives", where=where, found=exc.strerror) from exc
