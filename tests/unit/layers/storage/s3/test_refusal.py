# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from quickthaw.layers.errors import (
    ShardError,
    ShardMissingError,
    ShardReplacedError,
    ShardTruncatedError,
    StorageError,
)
from quickthaw.layers.storage.s3.refusal import Asked, field_of, refusal

ASKED = Asked("models", "smol/layer-000.safetensors")


@pytest.mark.parametrize(
    ("status", "code", "kind", "told"),
    [
        (404, "NoSuchKey", ShardMissingError, "no such object"),
        (404, "NoSuchBucket", ShardMissingError, "no such bucket"),
        (403, "AccessDenied", ShardMissingError, f"s3:GetObject on arn:aws:s3:::models/{ASKED.key}"),
        (403, "SignatureDoesNotMatch", ShardMissingError, "AWS_SECRET_ACCESS_KEY"),
        (412, "PreconditionFailed", ShardReplacedError, "replaced while it was read"),
        (416, "InvalidRange", ShardTruncatedError, "wrong size"),
        (400, "ExpiredToken", StorageError, "expired"),
        (403, "RequestTimeTooSkewed", StorageError, "RequestTimeTooSkewed"),
        (503, "SlowDown", StorageError, "503 SlowDown"),
        (500, "", StorageError, "500"),
    ],
)
def test_a_refusal_is_of_the_kind_that_says_what_to_do(
    status: int, code: str, kind: type[ShardError], told: str
) -> None:
    error = refusal(ASKED, status, code)

    assert type(error) is kind
    assert told in str(error)
    assert f"s3://models/{ASKED.key}" in str(error)


def test_only_words_are_taken_from_a_document() -> None:
    document = b"<Error><Code>AccessDenied</Code><Message>AKIA\n</Message><Region>eu-west-1</Region></Error>"

    assert field_of(document, "Code") == "AccessDenied"
    assert field_of(document, "Region") == "eu-west-1"
    assert field_of(document, "Message") == ""
    assert field_of(document, "BucketName") == ""
    assert field_of(b"<Region>evil.example/</Region>", "Region") == ""
