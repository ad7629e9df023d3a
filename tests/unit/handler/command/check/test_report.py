# SPDX-License-Identifier: Apache-2.0
"""The command, from its arguments to its exit code."""

from pathlib import Path

import pytest

from quickthaw.handler import cli
from tests import shards

TEMPLATE = str(Path(__file__).parents[5] / "template.yaml")


def check(*arguments: str) -> int:
    return cli.main(["check", *arguments])


def test_our_template_is_well_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert check("--template", TEMPLATE) == 0
    assert capsys.readouterr().out == "nothing is refused, open or slow\n"


def test_what_would_be_refused_is_told_with_reason_and_fix(capsys: pytest.CaptureFixture[str]) -> None:
    assert check("--template", TEMPLATE, "--parameters", "SnapStart=on", "Shards=efs") == 78
    out = capsys.readouterr().out
    assert "refused  ZipFunction: SnapStart with EFS\n" in out
    assert "         a snapshot cannot hold a mounted file system\n         → put the shards" in out
    assert out.index("refused") < out.index("slow") < out.index("cost")


def test_what_is_only_slow_may_be_deployed(capsys: pytest.CaptureFixture[str]) -> None:
    assert check("--template", TEMPLATE, "--parameters", "MemoryMib=512", "WarmEnvironments=3") == 0
    out = capsys.readouterr().out
    assert "slow     ZipFunction: MemorySize of 512" in out
    assert "cost     ZipFunction: 3 warm environments" in out


def test_a_file_of_variables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    env = tmp_path / "env"
    env.write_text("# what we serve\n\nQUICKTHAW_VERIFY=first\nQUICKTHAW_MAX_TOKENS = none\n")
    assert check("--template", TEMPLATE, "--env", str(env)) == 78
    assert "QUICKTHAW_MAX_TOKENS: 'none'" in capsys.readouterr().out


def test_variables_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "env").write_text("QUICKTHAW_VERIFY=always")
    made = shards.make(tmp_path)
    assert check("--env", "env", "--shards", str(made)) == 0
    assert "slow     the environment: QUICKTHAW_VERIFY=always" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "said"), [("QUICKTHAW_VERIFY", "line 1: expected NAME=VALUE"), (None, "cannot read")]
)
def test_a_bad_file_of_variables(
    tmp_path: Path, text: str | None, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    env = tmp_path / "env"
    if text is not None:
        env.write_text(text)
    assert check("--template", TEMPLATE, "--env", str(env)) == 78
    assert said in capsys.readouterr().err


def test_a_template_without_functions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "template.yaml"
    path.write_text("Resources: {B: {Type: AWS::S3::Bucket}}")
    assert check("--template", str(path)) == 78
    assert "has no Lambda function" in capsys.readouterr().err


@pytest.mark.parametrize(
    "properties", ["{MemorySize: much}", "{Environment: [1]}", "{FileSystemConfigs: 7}", "{SnapStart: on}"]
)
def test_a_function_that_makes_no_sense(
    tmp_path: Path, properties: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "template.yaml"
    path.write_text(f"Resources: {{F: {{Type: AWS::Lambda::Function, Properties: {properties}}}}}")
    assert check("--template", str(path)) == 78
    assert "no template that AWS would take" in capsys.readouterr().err


def test_a_parameter_without_a_value(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        check("--parameters", "SnapStart")
    assert "expected NAME=VALUE" in capsys.readouterr().err
