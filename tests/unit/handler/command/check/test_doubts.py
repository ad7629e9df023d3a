# SPDX-License-Identifier: Apache-2.0
from typing import Any

import pytest

from quickthaw.handler.command.check.deployment import Kind
from tests.unit.handler.command.check.deployments import EFS, IMAGE, SHARDS_BYTES, found, variables

HTTP_API = {"A": {"Type": "AWS::ApiGatewayV2::Api", "Properties": {"ProtocolType": "HTTP"}}}
RULE = {
    "R": {"Type": "AWS::Events::Rule", "Properties": {"ScheduleExpression": "rate(5 minutes)", "Targets": []}}
}
OPEN_URL = {"U": {"Type": "AWS::Lambda::Url", "Properties": {"AuthType": "NONE"}}}
OPEN_ROUTE = {"R": {"Type": "AWS::ApiGatewayV2::Route", "Properties": {"RouteKey": "$default"}}}
IN_S3 = variables(QUICKTHAW_SHARDS="s3://bucket/llama")
ON_EFS = EFS | variables(QUICKTHAW_SHARDS="/mnt/weights")


def doubts(kind: Kind, *args: Any, **kwargs: Any) -> list[str]:
    return [each.what for each in found(*args, **kwargs) if each.kind is kind]


@pytest.mark.parametrize(
    ("properties", "resources", "said"),
    [
        ({"MemorySize": 1024}, {}, "MemorySize of 1024"),
        (variables(QUICKTHAW_VERIFY="first"), {}, "QUICKTHAW_VERIFY=first"),
        (ON_EFS, {}, "shards on EFS"),
        (IN_S3, {}, "shards at s3://bucket/llama"),
        ({"Timeout": 31}, HTTP_API, "an HTTP API before a function with a timeout of 31 s"),
        (ON_EFS, RULE, "a warmer of a function in a VPC"),
        ({**IMAGE, "AcceleratorConfig": {}}, {}, "a GPU"),
    ],
)
def test_what_is_slow(properties: dict[str, Any], resources: dict[str, Any], said: str) -> None:
    assert said in doubts(Kind.SLOW, properties, resources)


def test_what_is_not() -> None:
    assert found({}, {**HTTP_API, **RULE}) == []


def test_shards_that_memory_does_not_hold() -> None:
    assert doubts(Kind.SLOW, IMAGE, shard_bytes=SHARDS_BYTES) == []
    assert doubts(Kind.SLOW, IMAGE, shard_bytes=7 * SHARDS_BYTES) == [
        "MemorySize of 3538 for 3,766 MB of shards"
    ]


def test_shards_that_the_disk_does_not_hold() -> None:
    said = "a /tmp of 512 MiB for 538 MB of shards"
    assert said in doubts(Kind.SLOW, IN_S3, shard_bytes=SHARDS_BYTES)
    assert said not in doubts(
        Kind.SLOW, {**IN_S3, "EphemeralStorage": {"Size": 1024}}, shard_bytes=SHARDS_BYTES
    )


@pytest.mark.parametrize("resources", [OPEN_URL, OPEN_ROUTE])
def test_an_address_that_is_open(resources: dict[str, Any]) -> None:
    assert doubts(Kind.OPEN, {}, resources) == ["an address that lets everybody in"]
    assert doubts(Kind.OPEN, variables(QUICKTHAW_API_KEYS="k"), resources) == []
