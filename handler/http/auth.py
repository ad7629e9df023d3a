# SPDX-License-Identifier: Apache-2.0
"""Who may ask: bearer keys, for HTTP requests. A direct invocation is IAM's to allow.

Keys come from the environment, or a file with one on each line; # begins a comment. The file is read with
each request: a key that was changed there counts at once, and none is kept in a snapshot.
"""

from __future__ import annotations

from _operator import _compare_digest as is_same  # hmac's, whose import of hashlib costs 3 ms of a start
from collections.abc import Iterable

from quickthaw.handler.errors import ApiKeysError, AuthenticationError

_SCHEME = "bearer"
_FILE_LIMIT_BYTES = 1 << 20


class ApiKeys:
    """The keys in the environment. They show nowhere: not in a message, not in a repr."""

    def __init__(self, keys: Iterable[str] = ()) -> None:
        self.encoded = tuple([key.encode("utf-8", "surrogateescape") for key in keys])

    @classmethod
    def parse(cls, text: str) -> ApiKeys:
        """Keys between commas. Raises: ValueError when there are commas and no keys."""
        keys = [key.strip() for key in text.split(",") if key.strip()]
        if text and not keys:
            raise ValueError
        return cls(keys)

    def __repr__(self) -> str:
        return f"<{len(self.encoded)} keys>"


class Guard:
    """Lets requests in, or not. Without keys and without a file it lets everybody in."""

    def __init__(self, keys: ApiKeys, path: str | None) -> None:
        """Raises: ApiKeysError when the file cannot be read."""
        self._keys = keys
        self._path = path
        self._read_file()  # to fail at init, not with the first request

    def check(self, authorization: str | None) -> None:
        """Raises: AuthenticationError, ApiKeysError."""
        if not self._keys.encoded and self._path is None:
            return
        scheme, _, key = (authorization or "").partition(" ")
        if scheme.lower() != _SCHEME or not key.strip():
            raise AuthenticationError("no API key: expected a header `authorization: Bearer KEY`")
        if not self._is_known(key.strip().encode("utf-8", "surrogatepass")):
            raise AuthenticationError("the API key is not known")

    def _is_known(self, key: bytes) -> bool:
        """Compares with every key, and each in a time that does not tell how much of it was right."""
        is_known = False
        for known in (*self._keys.encoded, *self._read_file()):
            is_known |= is_same(known, key)
        return is_known

    def _read_file(self) -> list[bytes]:
        if self._path is None:
            return []
        try:
            with open(self._path, "rb") as file:
                lines = file.read(_FILE_LIMIT_BYTES).splitlines()
        except OSError as exc:
            raise ApiKeysError(f"the file of API keys cannot be read: {self._path}: {exc.strerror}") from exc
        return [key for line in lines if (key := line.partition(b"#")[0].strip())]
