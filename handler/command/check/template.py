# SPDX-License-Identifier: Apache-2.0
"""A CloudFormation or SAM template, read as AWS would read it with given parameters.

Parameters, conditions, globals and the common intrinsic functions are worked out; what only a deployment
knows, such as an ARN, stays a name. Resources whose condition is false are left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from quickthaw.handler.errors import ConfigurationError

_FUNCTIONS = ("AWS::Serverless::Function", "AWS::Lambda::Function")
_PSEUDO_PARAMETERS = {
    "AWS::AccountId": "123456789012",
    "AWS::Partition": "aws",
    "AWS::Region": "us-east-1",
    "AWS::StackName": "quickthaw",
    "AWS::URLSuffix": "amazonaws.com",
}
_ABSENT = object()  # AWS::NoValue


class Function(NamedTuple):
    """One Lambda function; its properties hold what globals say too."""

    name: str
    properties: Mapping[str, Any]

    @property
    def variables(self) -> dict[str, str]:
        """Its environment variables."""
        variables = self.properties.get("Environment", {}).get("Variables", {})
        return {name: str(value) for name, value in variables.items()}

    @property
    def is_image(self) -> bool:
        """Whether it is no zip."""
        return self.properties.get("PackageType") == "Image"

    def number(self, name: str, default: int) -> int:
        """A property that is a number."""
        return int(self.properties.get(name, default))


class Template:
    """A template's document with the parameters it would be deployed with."""

    def __init__(self, document: Mapping[str, Any], parameters: Mapping[str, str]) -> None:
        self._document = document
        self._parameters = parameters
        defaults = {name: each.get("Default", "") for name, each in self._section("Parameters").items()}
        self._values = {**defaults, **parameters}
        self.resources: dict[str, Any] = {
            name: self.resolve(resource)
            for name, resource in self._section("Resources").items()
            if "Condition" not in resource or self._is_met(resource["Condition"])
        }

    @property
    def functions(self) -> list[Function]:
        """Every Lambda function that would be deployed."""
        shared = self.resolve(self._section("Globals").get("Function", {}))
        return [
            Function(
                name,
                _merged(shared if "Serverless" in resource["Type"] else {}, resource.get("Properties", {})),
            )
            for name, resource in self.resources.items()
            if resource["Type"] in _FUNCTIONS
        ]

    def of_type(self, *types: str) -> dict[str, Any]:
        """Name → properties of the resources of these types."""
        return {n: r.get("Properties", {}) for n, r in self.resources.items() if r["Type"] in types}

    def parameter(self, name: str) -> Mapping[str, Any]:
        """How a parameter is declared."""
        declared: Mapping[str, Any] = self._section("Parameters")[name]
        return declared

    def json(self, text: str) -> Any:
        """A property that is JSON in a string; None where it is not."""
        try:
            return json.loads(text)
        except ValueError:
            return None

    def broken_rules(self) -> list[str]:
        """What the template itself refuses: values of parameters, and its Rules."""
        return [*self._bad_parameters(), *self._broken_assertions()]

    def resolve(self, value: Any) -> Any:
        """`value` with its intrinsic functions worked out."""
        if isinstance(value, list):
            return [each for each in map(self.resolve, value) if each is not _ABSENT]
        if not isinstance(value, dict):
            return value
        if len(value) == 1:
            name, argument = next(iter(value.items()))
            if name in _INTRINSICS:
                return _INTRINSICS[name](self, argument)
        resolved = {name: self.resolve(each) for name, each in value.items()}
        return {name: each for name, each in resolved.items() if each is not _ABSENT}

    def _section(self, name: str) -> Mapping[str, Any]:
        section = self._document.get(name) or {}
        if not isinstance(section, dict):
            raise ConfigurationError(f"a template's {name}: expected a mapping")
        return section

    def _bad_parameters(self) -> list[str]:
        declared = self._section("Parameters")
        unknown = [f"there is no parameter {name}" for name in self._parameters if name not in declared]
        return unknown + [
            f"parameter {name} is {self._values[name]!r}, {expected}"
            for name, each in declared.items()
            for expected in _expected(each, str(self._values[name]))
        ]

    def _broken_assertions(self) -> list[str]:
        return [
            assertion.get("AssertDescription", name)
            for name, rule in self._section("Rules").items()
            if self.resolve(rule.get("RuleCondition", True))
            for assertion in rule["Assertions"]
            if not self.resolve(assertion["Assert"])
        ]

    def _is_met(self, condition: str) -> bool:
        try:
            return bool(self.resolve(self._section("Conditions")[condition]))
        except KeyError:
            raise ConfigurationError(f"a template's condition {condition} is nowhere defined") from None

    # --- intrinsic functions ---

    def _ref(self, name: str) -> Any:
        if name == "AWS::NoValue":
            return _ABSENT
        if name in _PSEUDO_PARAMETERS:
            return _PSEUDO_PARAMETERS[name]
        if name not in self._values:
            return name  # of a resource
        if "List" in self.parameter(name)["Type"]:
            return [each.strip() for each in str(self._values[name]).split(",")]
        return self._values[name]

    def _if(self, argument: list[Any]) -> Any:
        condition, then, otherwise = argument
        return self.resolve(then if self._is_met(condition) else otherwise)

    def _sub(self, argument: str | list[Any]) -> str:
        text, given = argument if isinstance(argument, list) else (argument, {})

        def value(match: re.Match[str]) -> str:
            name = match[1]
            return str(self.resolve(given[name]) if name in given else self._ref(name))

        return re.sub(r"\$\{([^!}][^}]*)\}", value, text)

    def _equals(self, argument: list[Any]) -> bool:
        left, right = map(self.resolve, argument)
        return str(left) == str(right)

    def _contains(self, argument: list[Any]) -> bool:
        values, wanted = map(self.resolve, argument)
        return str(wanted) in map(str, values)


_INTRINSICS: dict[str, Callable[[Template, Any], Any]] = {
    "Ref": Template._ref,
    "Condition": Template._is_met,
    "Fn::If": Template._if,
    "Fn::Sub": Template._sub,
    "Fn::Equals": Template._equals,
    "Fn::Contains": Template._contains,
    "Fn::Not": lambda template, argument: not template.resolve(argument[0]),
    "Fn::And": lambda template, argument: all(map(template.resolve, argument)),
    "Fn::Or": lambda template, argument: any(map(template.resolve, argument)),
    "Fn::GetAtt": lambda _, argument: argument if isinstance(argument, str) else ".".join(argument),
    "Fn::Join": lambda template, argument: argument[0].join(map(str, template.resolve(argument[1]))),
}


def _expected(declared: Mapping[str, Any], value: str) -> list[str]:
    """What a parameter's value should have been."""
    found = []
    allowed = declared.get("AllowedValues")
    if allowed is not None and value not in map(str, allowed):
        found.append(f"allowed are {', '.join(map(str, allowed))}")
    if declared["Type"] == "Number":
        low, high = float(declared.get("MinValue", "-inf")), float(declared.get("MaxValue", "inf"))
        if not re.fullmatch(r"-?\d+(\.\d+)?", value) or not low <= float(value) <= high:
            found.append(f"expected a number from {low:g} to {high:g}")
    if "AllowedPattern" in declared and not re.fullmatch(declared["AllowedPattern"], value):
        found.append(f"expected {declared['AllowedPattern']}")
    return found


def _merged(shared: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """As SAM merges globals: mappings by their names, all else is replaced."""
    merged = {**shared, **own}
    for name in shared.keys() & own.keys():
        if isinstance(shared[name], dict) and isinstance(own[name], dict):
            merged[name] = _merged(shared[name], own[name])
    return merged


def read_template(path: Path, parameters: Mapping[str, str]) -> Template:
    """Raises: ConfigurationError where it cannot be read, or is no template."""
    try:
        import yaml  # type: ignore[import-untyped]
    except ModuleNotFoundError:
        raise ConfigurationError(
            "reading a template needs pyyaml: install quickthaw with its extra, as in pip install '.[check]'"
        ) from None

    class Loader(yaml.SafeLoader):  # type: ignore[misc]  # a class of its own: tags are added to the class
        pass

    def tagged(loader: Any, suffix: str, node: Any) -> dict[str, Any]:
        name = suffix if suffix in ("Ref", "Condition") else f"Fn::{suffix}"
        if isinstance(node, yaml.ScalarNode):
            return {name: loader.construct_scalar(node)}
        if isinstance(node, yaml.SequenceNode):
            return {name: loader.construct_sequence(node, deep=True)}
        return {name: loader.construct_mapping(node, deep=True)}

    Loader.add_multi_constructor("!", tagged)
    try:
        document = yaml.load(path.read_text(), Loader)
    except OSError as exc:
        raise ConfigurationError(f"cannot read {path}: {exc.strerror}; --template names another") from exc
    except (UnicodeDecodeError, yaml.YAMLError) as exc:
        raise ConfigurationError(f"cannot read {path}: {exc}") from exc
    if not isinstance(document, dict) or not isinstance(document.get("Resources"), dict):
        raise ConfigurationError(f"{path} is no CloudFormation template: it has no Resources")
    try:
        return Template(document, parameters)
    except (KeyError, TypeError, ValueError, AttributeError) as exc:
        raise ConfigurationError(f"{path} is no template that AWS would take: {exc!r}") from exc
