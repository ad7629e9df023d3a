# SPDX-License-Identifier: Apache-2.0
"""Schemathesis asks the function what its own description says may be asked, and what it says may not."""

import json
import re

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import Case, GenerationMode
from schemathesis.checks import CheckContext
from schemathesis.core.transport import Response

from quickthaw.handler.function import Function
from quickthaw.handler.timeline import Timeline
from tests.contract.wsgi import WsgiFunction
from tests.unit.handler.fakes import session

N_EXAMPLES = 60
OPERATIONS = [
    ("GET", "/healthz"),
    ("GET", "/metrics"),
    ("GET", "/v1/models"),
    ("GET", "/v1/models/{model}"),
    ("POST", "/v1/completions"),
    ("POST", "/v1/chat/completions"),
]
# What the description cannot say: how many tokens a text has, and what one field means for another.
# A JSON Schema's integers include 7.0, which is refused here.
BEYOND_THE_DESCRIPTION = {
    "context_length_exceeded": lambda _error: True,
    "invalid_value": lambda error: error["param"] in ("top_logprobs", "prompt")
    or "logit_bias" in error["param"]
    or error["message"].endswith("found both"),  # of max_tokens and max_completion_tokens
    "unsupported_parameter": lambda error: error["param"] == "best_of",
    "model_not_found": lambda _error: True,
}
FLOAT_FOR_INTEGER = re.compile(r"expected (an integer|a token id)\b.*, found [-0-9.e+]+ \(a number\)")

_function = Function(session("hi" * 5, environ={"QUICKTHAW_LOG": "off"})[0], Timeline())
schema = schemathesis.openapi.from_wsgi("/openapi.json", WsgiFunction(_function))
checks = [
    schemathesis.checks.not_a_server_error,
    schemathesis.checks.status_code_conformance,
    schemathesis.checks.content_type_conformance,
    schemathesis.checks.response_schema_conformance,
]


def no_stack_trace(_context: CheckContext, response: Response, _case: Case) -> None:
    assert "Traceback" not in response.text
    assert ".py" not in response.text


def described_is_accepted(_context: CheckContext, response: Response, case: Case) -> None:
    if response.status_code == 200:
        return
    error = json.loads(response.content)["error"]
    is_beyond = BEYOND_THE_DESCRIPTION.get(error["code"], lambda _error: False)
    assert is_beyond(error) or FLOAT_FOR_INTEGER.search(error["message"]), (error, case.body)


def test_there_is_nothing_else_to_ask() -> None:
    found = {(each.ok().method.upper(), each.ok().path) for each in schema.get_all_operations()}
    assert found == set(OPERATIONS)  # schemathesis leaves out /openapi.json, which it has read to get here


@pytest.mark.parametrize("operation", OPERATIONS, ids=" ".join)
@pytest.mark.parametrize(
    "mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["as described", "otherwise"]
)
def test_it_answers_as_described(operation: tuple[str, str], mode: GenerationMode) -> None:
    method, path = operation
    if method == "GET" and mode is GenerationMode.NEGATIVE:
        return
    more = [no_stack_trace, described_is_accepted] if mode is GenerationMode.POSITIVE else [no_stack_trace]

    @settings(
        max_examples=N_EXAMPLES, deadline=20_000, suppress_health_check=list(HealthCheck), database=None
    )
    @given(schema[path][method].as_strategy(generation_mode=mode))
    def ask(case: Case) -> None:
        case.call_and_validate(checks=[*checks, *more])

    ask()
