# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from quickthaw.layers.storage.s3.config import Credentials, S3Config, credentials_from_env

KEYS = {"AWS_ACCESS_KEY_ID": "AKIA", "AWS_SECRET_ACCESS_KEY": "secret"}


def test_an_empty_environment_says_nothing() -> None:
    assert S3Config.from_env({}) == S3Config(None, None, None)
    assert credentials_from_env({}) is None


def test_the_endpoint_of_s3_alone_goes_before_that_of_all_services() -> None:
    both = {"AWS_ENDPOINT_URL": "http://all", "AWS_ENDPOINT_URL_S3": "http://s3"}

    assert S3Config.from_env(both).endpoint == "http://s3"
    assert S3Config.from_env({**both, "AWS_ENDPOINT_URL_S3": ""}).endpoint == "http://all"


def test_the_region_is_what_lambda_says_or_boto3_reads() -> None:
    assert (
        S3Config.from_env({"AWS_REGION": "eu-west-1", "AWS_DEFAULT_REGION": "us-east-2"}).region
        == "eu-west-1"
    )
    assert S3Config.from_env({"AWS_DEFAULT_REGION": "us-east-2"}).region == "us-east-2"


def test_half_a_pair_of_keys_is_none() -> None:
    assert credentials_from_env(KEYS) == Credentials("AKIA", "secret", None)
    assert credentials_from_env({**KEYS, "AWS_SESSION_TOKEN": "t"}) == Credentials("AKIA", "secret", "t")
    assert credentials_from_env({"AWS_ACCESS_KEY_ID": "AKIA"}) is None


def test_credentials_are_not_shown() -> None:
    assert "secret" not in repr(credentials_from_env(KEYS))
