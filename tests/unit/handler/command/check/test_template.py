# SPDX-License-Identifier: Apache-2.0
import sys
from pathlib import Path

import pytest

from quickthaw.handler.command.check.template import Template, read_template
from quickthaw.handler.errors import ConfigurationError

TEXT = """
Parameters:
  Size: {Type: Number, Default: 1024, MinValue: 128}
  Kind: {Type: String, Default: a, AllowedValues: [a, b]}
  Nets: {Type: CommaDelimitedList, Default: "x, y"}
Conditions:
  IsB: !Equals [!Ref Kind, b]
  IsNot: !Not [!Condition IsB]
  Both: !And [!Condition IsB, !Condition IsNot]
  Either: !Or [!Condition IsB, !Condition IsNot]
Rules:
  NoB:
    RuleCondition: !Contains [!Ref Nets, z]
    Assertions: [{Assert: !Equals [!Ref Kind, a], AssertDescription: z goes with a}]
Globals:
  Function: {MemorySize: !Ref Size, Environment: {Variables: {ONE: "1", TWO: "2"}}}
Resources:
  F:
    Type: AWS::Serverless::Function
    Properties:
      Timeout: 7
      Description: !If [IsB, bee, !Ref AWS::NoValue]
      Nets: !Ref Nets
      Role: !GetAtt Role.Arn
      Name: !Sub ["${Kind}-${Other}-${AWS::Region}-${!kept}", {Other: !Ref Size}]
      Joined: !Join ["-", [a, !Ref Kind]]
      Environment: {Variables: {TWO: two}}
  Only:
    Type: AWS::Lambda::Function
    Condition: IsB
    Properties: {Timeout: 9}
  Never: {Type: X, Condition: Both}
  Always: {Type: X, Condition: Either}
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "template.yaml"
    path.write_text(TEXT)
    return path


def test_a_function_as_it_would_be_deployed(path: Path) -> None:
    template = read_template(path, {})
    (function,) = template.functions
    assert function.properties == {
        "MemorySize": 1024,
        "Timeout": 7,
        "Nets": ["x", "y"],
        "Role": "Role.Arn",
        "Name": "a-1024-us-east-1-${!kept}",
        "Joined": "a-a",
        "Environment": {"Variables": {"ONE": "1", "TWO": "two"}},
    }
    assert function.variables == {"ONE": "1", "TWO": "two"}
    assert list(template.resources) == ["F", "Always"]


def test_parameters_change_it(path: Path) -> None:
    sam, plain = read_template(path, {"Kind": "b", "Size": "512"}).functions
    assert (sam.properties["Description"], sam.number("MemorySize", 128)) == ("bee", 512)
    assert plain.properties == {"Timeout": 9}  # globals are SAM's alone


def test_what_the_template_refuses(path: Path) -> None:
    assert read_template(path, {}).broken_rules() == []
    assert read_template(path, {"Nets": "z", "Kind": "b"}).broken_rules() == ["z goes with a"]
    said = read_template(path, {"Size": "12", "Kind": "c", "Colour": "red"}).broken_rules()
    assert said == [
        "there is no parameter Colour",
        "parameter Size is '12', expected a number from 128 to inf",
        "parameter Kind is 'c', allowed are a, b",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", "cannot read"),
        ("a: 1", "has no Resources"),
        ("Resources: {F: {Type: X, Condition: Missing}}", "condition Missing is nowhere defined"),
        ("Resources: {F: 7}", "no template that AWS would take"),
    ],
)
def test_what_is_no_template(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "template.yaml"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=said):
        read_template(path, {})


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="No such file"):
        read_template(tmp_path / "absent.yaml", {})


def test_without_pyyaml(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(ConfigurationError, match=r"pip install '\.\[check\]'"):
        read_template(path, {})


def test_json_in_a_property() -> None:
    template = Template({"Resources": {}}, {})
    assert template.json('{"a": 1}') == {"a": 1}
    assert template.json("{") is None
