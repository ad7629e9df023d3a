# SPDX-License-Identifier: Apache-2.0
import sys

import pytest

from quickthaw.handler import errors
from quickthaw.layers import errors as layers
from quickthaw.snapshot import errors as snapshot


def family(base: type[Exception]) -> list[type[Exception]]:
    return [base, *(each for child in base.__subclasses__() for each in family(child))]


@pytest.mark.parametrize("base", [errors.HandlerError, layers.LayersError, snapshot.SnapshotError])
def test_every_error_has_an_outcome(base: type[Exception]) -> None:
    missing = [kind.__name__ for kind in family(base) if kind not in errors.OUTCOMES]
    assert not missing


@pytest.mark.parametrize("base", [errors.HandlerError, layers.LayersError, snapshot.SnapshotError])
def test_the_tree_in_the_docstring_is_the_tree(base: type[Exception]) -> None:
    documentation = sys.modules[base.__module__].__doc__ or ""
    assert [kind.__name__ for kind in family(base) if kind.__name__ not in documentation] == []


def test_an_outcome_is_well_formed() -> None:
    for outcome in errors.OUTCOMES.values():
        assert 400 <= outcome.status < 600
        assert (outcome.type == "server_error") == (outcome.status >= 500)
        assert 64 <= outcome.exit_code <= 78


def test_a_field_error_names_field_expected_and_found() -> None:
    body = errors.error_body(errors.FieldError("max_tokens", "an integer", '"7" (a string)'))
    assert body == {
        "error": {
            "message": 'max_tokens: expected an integer, found "7" (a string)',
            "type": "invalid_request_error",
            "param": "max_tokens",
            "code": "invalid_value",
        }
    }


def test_an_unforeseen_error_keeps_its_words_to_itself() -> None:
    body = errors.error_body(KeyError("secret"))
    assert body["error"]["message"] == "the function failed; its log says why"
    assert body["error"]["type"] == "server_error"
    assert errors.outcome(KeyError("secret")).status == 500


@pytest.mark.parametrize("kind", errors.OUTCOMES)
def test_the_public_reads_the_message_of_a_refusal_alone(kind: type[Exception]) -> None:
    error = kind.__new__(kind)
    error.args, error.field, error.expected = ("/srv/x",), "", "/srv/x"  # type: ignore[attr-defined]
    is_quoted = "/srv/x" in errors.public_error_body(error)["error"]["message"]
    assert is_quoted == (errors.OUTCOMES[kind].status < 500)
