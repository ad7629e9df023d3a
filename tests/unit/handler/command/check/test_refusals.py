# SPDX-License-Identifier: Apache-2.0
from typing import Any

import pytest

from quickthaw.handler.command.check.deployment import Kind
from tests.unit.handler.command.check.deployments import (
    EFS,
    IMAGE,
    SHARDS_BYTES,
    SNAP_START,
    found,
    variables,
)

STREAMING_URL = {
    "U": {"Type": "AWS::Lambda::Url", "Properties": {"AuthType": "AWS_IAM", "InvokeMode": "RESPONSE_STREAM"}}
}
GPU = {**IMAGE, "CapacityProviderConfig": {"Arn": "a"}, "AcceleratorConfig": {"MemoryGiB": 24}}


def refusals(*args: Any, **kwargs: Any) -> list[str]:
    return [each.what for each in found(*args, **kwargs) if each.kind is Kind.REFUSED]


@pytest.mark.parametrize(
    "properties",
    [
        {},
        SNAP_START,
        {**SNAP_START, **IMAGE},
        {**SNAP_START, "Runtime": "python3.12"},
        EFS | variables(QUICKTHAW_SHARDS="/mnt/weights/llama"),
        {"EphemeralStorage": {"Size": 10_240}},
        variables(QUICKTHAW_WARMUP_EVENT="/var/task/event.json"),
    ],
)
def test_what_may_be(properties: dict[str, Any]) -> None:
    assert refusals(properties) == []


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        (SNAP_START | EFS, "SnapStart with EFS"),
        (SNAP_START | {"EphemeralStorage": {"Size": 1024}}, "SnapStart with 1024 MB of /tmp"),
        (SNAP_START | {"ProvisionedConcurrencyConfig": {}}, "SnapStart with provisioned concurrency"),
        (SNAP_START | {"AutoPublishAlias": None}, "SnapStart on $LATEST"),
        (SNAP_START | {"Runtime": "python3.11"}, "SnapStart on python3.11"),
        (SNAP_START | {"CapacityProviderConfig": {}}, "SnapStart on managed instances"),
        ({"MemorySize": 10_241}, "MemorySize of 10241"),
        ({"Timeout": 901}, "Timeout of 901"),
        ({"EphemeralStorage": {"Size": 511}}, "EphemeralStorage of 511"),
        ({"FileSystemConfigs": EFS["FileSystemConfigs"]}, "EFS without a VPC"),
        (EFS | {"FileSystemConfigs": [{"LocalMountPath": "/weights"}]}, "a file system at /weights"),
        (variables(QUICKTHAW_SHARDS="/mnt/weights/llama"), "shards at /mnt/weights/llama, where nothing"),
        (EFS | variables(QUICKTHAW_SHARDS="/mnt/weights2"), "shards at /mnt/weights2, where nothing"),
        (GPU | {"PackageType": "Zip"}, "a GPU with a zip"),
        (GPU | {"Architectures": ["arm64"]}, "a GPU on arm64"),
        ({**IMAGE, "AcceleratorConfig": {}}, "a GPU without a capacity provider"),
        ({**IMAGE, "CapacityProviderConfig": {}}, "managed instances"),
        (variables(AWS_LAMBDA_RUNTIME_API="x"), "variable AWS_LAMBDA_RUNTIME_API"),
        (variables(AWS_REGION="x"), "variable AWS_REGION"),
        (variables(LONG="x" * 4096), "an environment of"),
        (variables(QUICKTHAW_RESTORE_GATE="fd:3"), "variable QUICKTHAW_RESTORE_GATE"),
        (variables(QUICKTHAW_MAX_TOKEN="3"), "the function's configuration"),
        (variables(QUICKTHAW_VERIFY="sometimes"), "the function's configuration"),
    ],
)
def test_what_is_refused(properties: dict[str, Any], said: str) -> None:
    assert any(what.startswith(said) for what in refusals(properties))


def test_shards_that_do_not_fit() -> None:
    assert refusals({}, shard_bytes=170_000_000) == []
    assert refusals({}, shard_bytes=SHARDS_BYTES) == ["shards of 538 MB in a zip"]
    assert refusals(IMAGE, shard_bytes=SHARDS_BYTES) == []
    in_tmp = variables(QUICKTHAW_SHARDS="/tmp/shards")
    assert refusals({**IMAGE, **in_tmp}, shard_bytes=SHARDS_BYTES) == ["a shard set of 538 MB in /tmp"]
    assert refusals({**IMAGE, **in_tmp, "EphemeralStorage": {"Size": 1024}}, shard_bytes=SHARDS_BYTES) == []


def test_a_streaming_url_expects_streams() -> None:
    assert refusals(variables(QUICKTHAW_STREAM="always"), STREAMING_URL) == []
    assert refusals({}, STREAMING_URL) == ["QUICKTHAW_STREAM=on behind a streaming URL or API"]
    stock = variables(QUICKTHAW_STREAM="always", AWS_LAMBDA_EXEC_WRAPPER="/opt/another")
    assert refusals(stock, STREAMING_URL) == ["a streaming URL or API, without quickthaw's bootstrap"]
    assert refusals({**IMAGE, **stock}, STREAMING_URL) == []


def test_every_refusal_has_a_reason_and_a_fix() -> None:
    everything = SNAP_START | EFS | {"EphemeralStorage": {"Size": 1}, "Runtime": "python3.9", "Timeout": 0}
    for each in found(everything | variables(AWS_REGION="x", QUICKTHAW_SHARDS="/mnt/elsewhere")):
        assert each.why
        assert each.fix or each.kind is Kind.COST
