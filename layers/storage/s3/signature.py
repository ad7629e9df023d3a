# SPDX-License-Identifier: Apache-2.0
"""AWS Signature Version 4 for a GET from S3, in the headers: what botocore.auth does, without its import.

    AWS4-HMAC-SHA256 Credential=KEY/20260131/eu-west-1/s3/aws4_request, SignedHeaders=host;…, Signature=…

Source: https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html
"""

from __future__ import annotations

import hmac
import time
from hashlib import sha256
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quickthaw.layers.storage.s3.config import Credentials

_ALGORITHM = "AWS4-HMAC-SHA256"
_NO_BODY = sha256(b"").hexdigest()


def signed(path: str, headers: dict[str, str], credentials: Credentials, region: str) -> dict[str, str]:
    """`headers`, the host among them, and those that sign. `path` is percent-encoded, without a query."""
    now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    headers = {**headers, "x-amz-content-sha256": _NO_BODY, "x-amz-date": now}
    if credentials.token is not None:
        headers["x-amz-security-token"] = credentials.token
    names = ";".join(sorted(headers))
    lines = [f"{name}:{headers[name].strip()}" for name in sorted(headers)]
    request = "\n".join(["GET", path, "", *lines, "", names, _NO_BODY])
    scope = f"{now[:8]}/{region}/s3/aws4_request"
    message = "\n".join([_ALGORITHM, now, scope, sha256(request.encode()).hexdigest()])
    key = f"AWS4{credentials.secret_key}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, message.encode(), "sha256").hex()
    headers["authorization"] = (
        f"{_ALGORITHM} Credential={credentials.access_key}/{scope}, "
        f"SignedHeaders={names}, Signature={signature}"
    )
    return headers
