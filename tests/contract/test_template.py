# SPDX-License-Identifier: Apache-2.0
"""template.yaml: what AWS's own linter says of it, and that what it names is there."""

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from quickthaw.handler.command.check.template import Template, read_template
from quickthaw.handler.config import TABLES, HandlerConfig
from quickthaw.handler.events import is_ping
from quickthaw.handler.telemetry.embedded import DIMENSIONS
from quickthaw.handler.telemetry.metrics import BY_NAME
from quickthaw.handler.warming import ENVIRONMENTS_LIMIT, read_ping

ROOT = Path(__file__).parents[2]
PATH = ROOT / "template.yaml"


def template(**parameters: str) -> Template:
    return read_template(PATH, parameters)


def test_awss_linter_finds_nothing() -> None:
    done = subprocess.run(
        [Path(sys.executable).with_name("cfn-lint"), "--regions", "us-east-1", "--", PATH],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("package", ["zip", "image"])
@pytest.mark.parametrize("place", ["package", "efs"])
@pytest.mark.parametrize("auth", ["iam", "keys"])
def test_its_environment_is_one_the_function_takes(package: str, place: str, auth: str) -> None:
    (function,) = template(Package=package, Shards=place, Auth=auth).functions
    config = HandlerConfig.from_env(function.variables)
    assert config.layers.shards == ("/var/task/shards" if place == "package" else "/mnt/quickthaw/shards")
    assert config.streaming.value == "always"
    assert bool(config.api_keys.encoded) == (auth == "keys")


def test_its_handler_is_there() -> None:
    (function,) = template().functions
    module, _, name = function.properties["Handler"].rpartition(".")
    path = ROOT / (module.removeprefix("quickthaw.").replace(".", "/") + ".py")
    assert f"def {name}(" in path.read_text()


def test_its_wrapper_is_there() -> None:
    (function,) = template().functions
    wrapper = function.variables["AWS_LAMBDA_EXEC_WRAPPER"].removeprefix("/var/task/quickthaw/")
    assert (ROOT / wrapper).stat().st_mode & 0o111
    bootstrap = import_module("quickthaw.snapshot.bootstrap")
    assert bootstrap.__name__ in (ROOT / wrapper).read_text()


def test_its_verification_is_one_there_is() -> None:
    variables = {variable.name: variable for table in TABLES for variable in table}
    for value in template().parameter("Verify")["AllowedValues"]:
        variables["QUICKTHAW_VERIFY"].parse(value)


def test_its_ping_is_one() -> None:
    warmed = template(WarmEnvironments=str(ENVIRONMENTS_LIMIT))
    (target,) = warmed.resources["Warmer"]["Properties"]["Targets"]
    event = warmed.json(target["Input"])
    assert is_ping(event)
    assert read_ping(event).n_environments == ENVIRONMENTS_LIMIT
    assert warmed.parameter("WarmEnvironments")["MaxValue"] == ENVIRONMENTS_LIMIT


def test_its_alarm_is_on_a_metric_there_is() -> None:
    alarm = template().resources["SlowFirstTokens"]["Properties"]
    (function,) = template().functions
    assert alarm["MetricName"] in BY_NAME
    assert alarm["Namespace"] == HandlerConfig.from_env(function.variables).metrics_namespace
    assert tuple(dimension["Name"] for dimension in alarm["Dimensions"]) == DIMENSIONS
    assert HandlerConfig.from_env(function.variables).metrics.value == "emf"


def test_the_image_runs_what_the_zip_runs() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    said = dict(line.split(" ", 1) for line in lines if line.split(" ")[0] in ("ENTRYPOINT", "CMD", "FROM"))
    (zipped,) = template().functions
    assert json.loads(said["CMD"]) == [zipped.properties["Handler"]]
    assert json.loads(said["ENTRYPOINT"])[1:] == ["-m", "quickthaw.snapshot.bootstrap"]
    assert zipped.properties["Runtime"] in "".join(lines).replace("python:", "python")
    for line in lines:
        if line.startswith("COPY ") and "--from" not in line:
            assert all((ROOT / name).exists() for name in line.split()[1:-1])


# --- nothing is open, and nothing may more than it must ---


def _policies(found: Template) -> list[dict[str, Any]]:
    role = found.resources["FunctionRole"]["Properties"]
    return [each for policy in role["Policies"] for each in policy["PolicyDocument"]["Statement"]]


def test_nothing_is_open_by_default() -> None:
    found = template(RestApi="on", HttpApi="on", FunctionUrl="on")
    method = found.resources["RestApiGateway"]["Properties"]["DefinitionBody"]["paths"]["/{proxy+}"]
    assert method["x-amazon-apigateway-any-method"]["x-amazon-apigateway-auth"] == {"type": "AWS_IAM"}
    assert found.resources["HttpApiRoute"]["Properties"]["AuthorizationType"] == "AWS_IAM"
    assert found.resources["Url"]["Properties"]["AuthType"] == "AWS_IAM"
    assert "UrlPermission" not in found.resources


def test_where_the_gateway_lets_everybody_in_the_function_wants_a_key() -> None:
    found = template(HttpApi="on", FunctionUrl="on", Auth="keys", MaxConcurrency="5")
    assert found.resources["Url"]["Properties"]["AuthType"] == "NONE"
    (function,) = found.functions
    assert "resolve:secretsmanager" in function.variables["QUICKTHAW_API_KEYS"]
    method = found.resources["RestApiGateway"]["Properties"]["DefinitionBody"]["paths"]["/{proxy+}"]
    assert method["x-amazon-apigateway-any-method"]["security"] == [{"api_key": []}]


def test_its_role_may_little() -> None:
    assert [each["Action"] for each in _policies(template())] == [
        ["logs:CreateLogStream", "logs:PutLogEvents"]
    ]
    on_efs = _policies(template(Shards="efs", WarmEnvironments="2"))
    wildcards = [each["Action"] for each in on_efs if each["Resource"] == "*"]
    assert [action for actions in wildcards for action in actions if not action.startswith("ec2:")] == []
    assert all("*" not in str(each["Action"]) for each in on_efs)


# --- what AWS refuses cannot be chosen ---


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"SnapStart": "on", "Shards": "efs"}, "SnapStart does not go together with EFS"),
        ({"SnapStart": "on", "EphemeralStorageMib": "1024"}, "no more than 512 MB"),
        ({"Shards": "efs"}, "needs EfsAccessPointArn"),
        ({"Package": "image"}, "needs ImageUri"),
        ({"FunctionUrl": "on", "Auth": "keys"}, "Set MaxConcurrency"),
    ],
)
def test_what_aws_refuses_cannot_be_chosen(parameters: dict[str, str], said: str) -> None:
    assert any(said in refusal for refusal in template(**parameters).broken_rules())


def test_what_can_be_chosen() -> None:
    assert template().broken_rules() == []
    assert template(SnapStart="on").broken_rules() == []
