# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from quickthaw.layers.storage.s3.config import Credentials, S3Config
from quickthaw.layers.storage.s3.credentials import CredentialChain, CredentialsMissingError

NOWHERE = S3Config(None, None, None)


@pytest.fixture(autouse=True)
def _nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment in which nothing says who asks."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))


def test_the_environment_is_read_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    chain = CredentialChain()
    for key in ("before", "after a restore"):
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", key)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        assert chain.get() == Credentials(key, "secret")


def test_a_profile_is_found_as_boto3_finds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "credentials").write_text("[work]\naws_access_key_id = AKIA\naws_secret_access_key = s\n")
    (tmp_path / "config").write_text("[profile work]\nregion = eu-central-1\n")
    monkeypatch.setenv("AWS_PROFILE", "work")
    chain = CredentialChain()

    assert chain.get() == Credentials("AKIA", "s")
    assert chain.region(NOWHERE) == "eu-central-1"
    assert chain.region(S3Config(None, "us-west-2", None)) == "us-west-2"

    (tmp_path / "credentials").write_text("[work]\naws_access_key_id = NEW\naws_secret_access_key = s\n")
    chain.forget()
    assert chain.get() == Credentials("NEW", "s")


def test_nobody_asks() -> None:
    chain = CredentialChain()

    assert chain.region(NOWHERE) == "us-east-1"
    with pytest.raises(CredentialsMissingError):
        chain.get()


def test_a_profile_that_is_not_there_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "absent")

    with pytest.raises(CredentialsMissingError, match="ProfileNotFound"):
        CredentialChain().get()
