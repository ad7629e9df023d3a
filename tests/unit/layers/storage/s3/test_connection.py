# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from quickthaw.layers.storage.s3.connection import Address


@pytest.mark.parametrize(
    ("endpoint", "host", "port", "name"),
    [
        ("http://127.0.0.1:4566", "127.0.0.1", 4566, "127.0.0.1:4566"),
        ("http://localhost/", "localhost", 80, "localhost"),
        ("http://[::1]:9000", "::1", 9000, "[::1]:9000"),
        (
            "https://s3.eu-west-1.amazonaws.com",
            "s3.eu-west-1.amazonaws.com",
            443,
            "s3.eu-west-1.amazonaws.com",
        ),
        ("https://minio:9000", "minio", 9000, "minio:9000"),
    ],
)
def test_an_endpoint_is_an_address(endpoint: str, host: str, port: int, name: str) -> None:
    address = Address.of(endpoint, None)

    assert (address.host, address.port, address.name) == (host, port, name)
    assert (address.context is not None) == endpoint.startswith("https")


@pytest.mark.parametrize("endpoint", ["localhost:4566", "ftp://host", "http://", "http://host:port"])
def test_what_is_no_endpoint_is_refused(endpoint: str) -> None:
    with pytest.raises(ValueError, match=r"http|[Pp]ort"):
        Address.of(endpoint, None)
