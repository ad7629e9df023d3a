# SPDX-License-Identifier: Apache-2.0
"""`quickthaw check`: all there is to know of a deployment before it is made, what weighs most first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from quickthaw.handler.command.check import doubts, refusals
from quickthaw.handler.command.check.costs import costs
from quickthaw.handler.command.check.deployment import Deployment, Finding, Kind
from quickthaw.handler.command.check.template import Function, Template, read_template
from quickthaw.handler.errors import ConfigurationError

_RULES = {Kind.REFUSED: refusals.RULES, Kind.OPEN: doubts.OPEN, Kind.SLOW: doubts.SLOW}


def check(
    template: Path | None, parameters: Mapping[str, str], env: Path | None, shards: str | None
) -> list[Finding]:
    """Check a template, the one in the working folder unless told, or else the configuration in `env` alone.

    Raises: ConfigurationError, ManifestError.
    """
    environ = {} if env is None else read_environ(env)
    shard_bytes = None if shards is None else _size_bytes(shards)
    path = template or Path("template.yaml")
    if template is None and env is not None and not path.exists():
        return check_environ(environ, shard_bytes)
    return check_template(path, parameters, environ, shard_bytes)


def is_refused(found: Sequence[Finding]) -> bool:
    """Whether there is no use in deploying that."""
    return any(finding.kind is Kind.REFUSED for finding in found)


def check_template(
    path: Path, parameters: Mapping[str, str], environ: Mapping[str, str], shard_bytes: int | None
) -> list[Finding]:
    """Check every function of a template; `environ` is added to what it sets.

    Raises: ConfigurationError.
    """
    template = read_template(path, parameters)
    found = [
        Finding(Kind.REFUSED, path.name, "what it is deployed with", rule) for rule in template.broken_rules()
    ]
    try:
        functions = [_with_environ(function, environ) for function in template.functions]
        for function in functions:
            found += check_function(Deployment(function, template, shard_bytes))
    except (
        KeyError,
        TypeError,
        ValueError,
        AttributeError,
    ) as exc:  # a list for a mapping, text for a number
        raise ConfigurationError(f"{path} is no template that AWS would take: {exc!r}") from exc
    if not functions:
        raise ConfigurationError(f"{path} has no Lambda function")
    return found


def check_environ(environ: Mapping[str, str], shard_bytes: int | None) -> list[Finding]:
    """Check a configuration alone, as that of an image function with memory enough."""
    properties = {"PackageType": "Image", "MemorySize": 10_240, "Environment": {"Variables": dict(environ)}}
    template = Template({"Resources": {}}, {})
    return check_function(Deployment(Function("the environment", properties), template, shard_bytes))


def check_function(deployment: Deployment) -> list[Finding]:
    """All that the rules find."""
    where = deployment.function.name
    found = [
        Finding(kind, where, *told)
        for kind, rules in _RULES.items()
        for rule in rules
        for told in rule(deployment)
    ]
    return found + [Finding(Kind.COST, where, what, how_much) for what, how_much in costs(deployment)]


def _with_environ(function: Function, environ: Mapping[str, str]) -> Function:
    variables = {"Variables": {**function.variables, **environ}}
    return function._replace(properties={**function.properties, "Environment": variables})


def _size_bytes(shards: str) -> int:
    from quickthaw.layers import manifest

    return sum(shard.size_bytes for shard in manifest.read(shards).shards)


def read_environ(path: Path) -> dict[str, str]:
    """A file of NAME=VALUE lines, as `docker run --env-file` takes it.

    Raises: ConfigurationError.
    """
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigurationError(f"cannot read {path}: {exc}") from exc
    told = [(n, line.strip()) for n, line in enumerate(lines, 1)]
    pairs = [(n, line.partition("=")) for n, line in told if line and not line.startswith("#")]
    for n, (name, equals, _) in pairs:
        if not equals or not name.strip():
            raise ConfigurationError(f"{path}, line {n}: expected NAME=VALUE")
    return {name.strip(): value.strip() for _, (name, _, value) in pairs}


def format_findings(found: Sequence[Finding]) -> str:
    """For people to read."""
    return "\n".join(line for finding in found for line in _lines(finding))


def _lines(finding: Finding) -> Iterator[str]:
    yield f"{finding.kind.value:8} {finding.where}: {finding.what}"
    yield f"         {finding.why}"
    if finding.fix:
        yield f"         → {finding.fix}"
