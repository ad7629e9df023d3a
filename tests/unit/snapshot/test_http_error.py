# SPDX-License-Identifier: Apache-2.0
import json

import pytest

from quickthaw.snapshot import errors
from quickthaw.snapshot.host.http_error import error_event, error_response


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.RequestTooLargeError(6), 413),
        (errors.TooManyRequestsError(3), 429),
        (errors.HostStoppedError(), 503),
        (errors.FunctionTimeoutError("Sandbox.Timedout", "Task timed out"), 504),
        (errors.FunctionExitedError("Runtime.ExitError", "Runtime exited"), 502),
        (errors.FunctionInitError("ImportError", "no numpy"), 502),
        (errors.FunctionError("KeyError", "secret", ("line 1",)), 502),
    ],
)
def test_every_failure_has_a_status_and_a_body(error: errors.SnapshotError, status: int) -> None:
    head, body = error_response(error)

    assert head.status == status
    assert ("content-type", "application/json") in head.headers
    assert (("retry-after", "1") in head.headers) == (status in (429, 503))
    assert set(json.loads(body)["error"]) == {"message", "type", "param", "code"}
    assert error_event(error) == b"data: " + body + b"\n\n"


def test_what_a_function_raised_stays_in_its_log() -> None:
    _, body = error_response(errors.FunctionError("KeyError", "secret", ("line 1",)))

    assert json.loads(body)["error"]["message"] == "the function failed with KeyError; its log says why"
