# SPDX-License-Identifier: Apache-2.0
"""Who asks S3, and in which region: the environment's word at once, else what boto3 would find.

botocore costs a start more than numpy does, and knows profiles, SSO, web identities, containers and EC2. So
it is imported only where the environment holds no keys, as under SnapStart: by init, before the capture.
"""

from __future__ import annotations

from threading import Lock
from typing import Any

from quickthaw.layers.storage.s3.config import Credentials, S3Config, credentials_from_env

_DEFAULT_REGION = "us-east-1"


class CredentialsMissingError(Exception):
    """Nobody has said who asks."""


class CredentialChain:
    """Looks anew each time: a restored process has others, and those of a session are renewed."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._session: Any = None

    def get(self) -> Credentials:
        """Raises: CredentialsMissingError."""
        return credentials_from_env() or self._from_session()

    def region(self, config: S3Config) -> str:
        """The configured region, or the profile's; botocore is not imported for it alone."""
        if config.region is not None:
            return config.region
        session = None if credentials_from_env() else self._open_session()
        return (session and session.get_config_variable("region")) or _DEFAULT_REGION

    def forget(self) -> None:
        """What was found has expired, or is about to be captured."""
        self._session = None

    def _from_session(self) -> Credentials:
        session = self._open_session()
        try:
            found = None if session is None else session.get_credentials()
            frozen = None if found is None else found.get_frozen_credentials()  # renewed when they are due
        except Exception as exc:  # whatever botocore's dozen providers raise: none of it is for us to handle
            raise CredentialsMissingError(f"no credentials: {type(exc).__name__}") from exc
        if frozen is None:
            raise CredentialsMissingError("no credentials")
        return Credentials(frozen.access_key, frozen.secret_key, frozen.token)

    def _open_session(self) -> Any:
        with self._lock:
            if self._session is None:
                try:
                    import botocore.session  # type: ignore[import-untyped]
                except ImportError:
                    return None
                self._session = botocore.session.Session()
            return self._session
