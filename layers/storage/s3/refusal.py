# SPDX-License-Identifier: Apache-2.0
"""What S3's refusals mean to whoever wants a shard.

    <?xml version="1.0" encoding="UTF-8"?>
    <Error><Code>NoSuchKey</Code><Message>…</Message><Key>…</Key>…</Error>

Of the document the code alone is told: a message may quote an access key.
Source: https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html
"""

from __future__ import annotations

from typing import NamedTuple

from quickthaw.layers.errors import (
    ShardError,
    ShardMissingError,
    ShardReplacedError,
    ShardTruncatedError,
    StorageError,
)

EXPIRED = ("ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "RequestExpired")
_UNKNOWN_CREDENTIALS = ("InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "AuthFailure")


_AGAIN = "push the whole shard set again with `quickthaw push`"


class Asked(NamedTuple):
    """An object; as text, as its user would name it."""

    bucket: str
    key: str

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.key}"


def field_of(document: bytes, name: str) -> str:
    """A field of the document; empty where it is none of the words that S3 puts there."""
    _, _, rest = document.partition(f"<{name}>".encode())
    text = rest.partition(b"<")[0].decode("ascii", "replace")
    return text if len(text) <= 64 and text.replace("-", "").isalnum() else ""


def refusal(asked: Asked, status: int, code: str) -> ShardError:
    """The error for a status that is no success: StorageError where the next time may be better."""
    found = f"{status} {code}".strip()
    if status == 404:
        return _missing(asked, code, found)
    if status == 412:
        return replaced(asked, found)
    if status == 416:
        return wrong_size(asked, None, found)
    if code in EXPIRED:
        advice = "renew them; a function on Lambda gets new ones with its next environment"
        return StorageError(
            "the credentials for S3 have expired", where=str(asked), found=found, advice=advice
        )
    if code in _UNKNOWN_CREDENTIALS:
        advice = "correct AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN"
        return ShardMissingError(
            "S3 does not accept these credentials", where=str(asked), found=found, advice=advice
        )
    if status in (401, 403) and code != "RequestTimeTooSkewed":
        return _denied(asked, found)
    return StorageError("S3 does not give an object", where=str(asked), found=found)


def replaced(asked: Asked, found: str) -> ShardReplacedError:
    """The error for an object that is another one than a moment ago."""
    return ShardReplacedError(
        "an object was replaced while it was read",
        where=str(asked),
        found=found,
        advice="restart the function; push a new shard set beside the old one, never over it",
    )


def wrong_size(asked: Asked, expected: str | None, found: str) -> ShardTruncatedError:
    """The error for an object that is not as large as the manifest says."""
    return ShardTruncatedError(
        "an object has the wrong size", where=str(asked), expected=expected, found=found, advice=_AGAIN
    )


def _missing(asked: Asked, code: str, found: str) -> ShardMissingError:
    what = "no such bucket" if code == "NoSuchBucket" else "no such object"
    return ShardMissingError(
        what,
        where=str(asked),
        found=found,
        advice="correct QUICKTHAW_SHARDS, or push the shard set with `quickthaw push`",
    )


def _denied(asked: Asked, found: str) -> ShardMissingError:
    return ShardMissingError(
        "may not read an object",
        where=str(asked),
        found=found,
        advice=f"allow s3:GetObject on arn:aws:s3:::{asked.bucket}/{asked.key}, if it is there: "
        "who may not list a bucket is not told what it lacks",
    )
