# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import time

import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as BotocoreCredentials

from quickthaw.layers.storage.s3.config import Credentials
from quickthaw.layers.storage.s3.signature import signed

HOST = "models.s3.eu-west-1.amazonaws.com"


@pytest.mark.parametrize("token", [None, "a-token=="])
@pytest.mark.parametrize(
    "extra", [{}, {"range": "bytes=0-8388607", "if-match": '"abc-2"'}], ids=["", "range"]
)
@pytest.mark.parametrize("path", ["/smol/layer-000.safetensors", "/a%20b/%C3%A9%2B"])
def test_it_signs_as_botocore_does(path: str, extra: dict[str, str], token: str | None) -> None:
    credentials = Credentials("AKIAEXAMPLE", "secret/+", token)

    for _ in range(3):  # botocore reads the clock itself: until both have read the same second
        ours = signed(path, {"host": HOST, **extra}, credentials, "eu-west-1")
        request = AWSRequest("GET", f"https://{HOST}{path}", headers=extra)
        S3SigV4Auth(BotocoreCredentials(*credentials), "s3", "eu-west-1").add_auth(request)
        if ours["x-amz-date"] == request.headers["X-Amz-Date"]:
            break
        time.sleep(0.05)

    assert ours["authorization"] == request.headers["Authorization"]
    assert ours.get("x-amz-security-token") == token
