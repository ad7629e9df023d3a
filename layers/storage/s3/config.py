# SPDX-License-Identifier: Apache-2.0
"""What the environment says of S3: variables that are AWS's own, read as boto3 reads them.

Source: https://docs.aws.amazon.com/sdkref/latest/guide/settings-reference.html
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple


class Credentials(NamedTuple):
    """Who asks; a `token` comes with those that expire. Never to be shown."""

    access_key: str
    secret_key: str
    token: str | None = None

    def __repr__(self) -> str:
        return "Credentials(…)"


class S3Config(NamedTuple):
    """Where S3 is; None: wherever AWS has it, and the region that a profile names, if any."""

    endpoint: str | None
    region: str | None
    ca_bundle: str | None

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> S3Config:
        """The endpoint of S3 alone goes before that of all services, and an empty variable is none."""
        environ = os.environ if environ is None else environ
        endpoint = environ.get("AWS_ENDPOINT_URL_S3") or environ.get("AWS_ENDPOINT_URL")
        region = environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION")
        return cls(endpoint or None, region or None, environ.get("AWS_CA_BUNDLE") or None)


def credentials_from_env(environ: Mapping[str, str] | None = None) -> Credentials | None:
    """Those in the environment: a function on Lambda finds its own there, unless SnapStart restored it."""
    environ = os.environ if environ is None else environ
    access_key, secret_key = environ.get("AWS_ACCESS_KEY_ID"), environ.get("AWS_SECRET_ACCESS_KEY")
    if not access_key or not secret_key:
        return None
    return Credentials(access_key, secret_key, environ.get("AWS_SESSION_TOKEN") or None)
