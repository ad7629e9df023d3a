# SPDX-License-Identifier: Apache-2.0
"""Deployments with one thing wrong."""

from typing import Any

from quickthaw.handler.command.check.deployment import Deployment, Finding
from quickthaw.handler.command.check.report import check_function
from quickthaw.handler.command.check.template import Template

WRAPPER = "/var/task/quickthaw/snapshot/exec_wrapper.sh"
SHARDS_BYTES = 538_000_000
VARIABLES = {
    "QUICKTHAW_SHARDS": "/var/task/shards",
    "QUICKTHAW_VERIFY": "never",
    "AWS_LAMBDA_EXEC_WRAPPER": WRAPPER,
}
PROPERTIES = {
    "Runtime": "python3.13",
    "MemorySize": 3538,
    "Timeout": 30,
    "AutoPublishAlias": "live",
    "Environment": {"Variables": VARIABLES},
}
IMAGE = {"PackageType": "Image", "Runtime": None}
SNAP_START = {"SnapStart": {"ApplyOn": "PublishedVersions"}}
EFS = {
    "FileSystemConfigs": [{"Arn": "arn", "LocalMountPath": "/mnt/weights"}],
    "VpcConfig": {"SubnetIds": ["subnet-1"], "SecurityGroupIds": ["sg-1"]},
}


def variables(**changes: str) -> dict[str, Any]:
    """The property that sets them."""
    return {"Environment": {"Variables": {**VARIABLES, **changes}}}


def deployment(
    properties: dict[str, Any], resources: dict[str, Any] | None = None, shard_bytes: int | None = None
) -> Deployment:
    """A function that is well but for these properties, and what lies beside it in its template."""
    kept = {name: value for name, value in {**PROPERTIES, **properties}.items() if value is not None}
    function = {"Type": "AWS::Serverless::Function", "Properties": kept}
    template = Template({"Resources": {"F": function, **(resources or {})}}, {})
    return Deployment(template.functions[0], template, shard_bytes)


def found(*args: Any, **kwargs: Any) -> list[Finding]:
    """All there is to know of it."""
    return check_function(deployment(*args, **kwargs))
