# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from quickthaw.snapshot.errors import FunctionError, StreamBrokenError, StreamRefusedError
from quickthaw.snapshot.host.invocation import Invocation
from quickthaw.snapshot.host.runtime_api import FUNCTION_ARN, RuntimeApi
from quickthaw.snapshot.host.sizes import RESPONSE_LIMIT_BYTES
from quickthaw.snapshot.transport import Transport

TIMEOUT_S = 30.0


@pytest.fixture
def api() -> Iterator[RuntimeApi]:
    with closing(RuntimeApi()) as api:
        yield api


@pytest.fixture
def transport(api: RuntimeApi) -> Iterator[Transport]:
    with closing(Transport(api.address, "test/1")) as transport:
        yield transport


def send(api: RuntimeApi, event: bytes) -> Invocation:
    invocation = Invocation(event, TIMEOUT_S)
    api.send(invocation)
    return invocation


@pytest.mark.parametrize("event", [b"", b"{}", bytes(3_000_000)], ids=len)
def test_events_come_with_what_belongs_to_them(api: RuntimeApi, transport: Transport, event: bytes) -> None:
    invocation = Invocation(event, TIMEOUT_S)
    invocation.client_context = '{"a": "\u00fc: b"}'
    api.send(invocation)
    body, headers = transport.next()
    assert body == event
    assert headers["Lambda-Runtime-Aws-Request-Id"] == invocation.request_id
    assert headers["Lambda-Runtime-Deadline-Ms"] == invocation.deadline_ms
    assert headers["Lambda-Runtime-Trace-Id"] == invocation.trace_id
    assert headers["Lambda-Runtime-Invoked-Function-Arn"] == FUNCTION_ARN
    assert headers["Lambda-Runtime-Client-Context"] == invocation.client_context


def test_answers_on_one_connection(api: RuntimeApi, transport: Transport) -> None:
    for answer in (b"1", bytes(1_000_000), b""):
        invocation = send(api, b"{}")
        transport.next()
        transport.post_invocation_result(invocation.request_id, answer, "text/plain")
        assert b"".join(chunk.data for chunk in invocation) == answer
        assert invocation.content_type == "text/plain"


def test_an_error_with_a_character_that_is_none(api: RuntimeApi, transport: Transport) -> None:
    invocation = send(api, b"{}")
    transport.next()
    document = '{"errorType": "E", "errorMessage": "\ud800"}'
    transport.post_error(invocation.request_id, document, "cause", "1")
    with pytest.raises(FunctionError, match="\ud800") as failure:
        list(invocation)
    assert failure.value.error_type == "E"


def test_an_answer_that_is_refused(api: RuntimeApi, transport: Transport) -> None:
    invocation = send(api, b"{}")
    transport.next()
    with pytest.raises(StreamRefusedError, match="413"):
        transport.post_invocation_result(
            invocation.request_id, bytes(RESPONSE_LIMIT_BYTES + 1), "application/json"
        )
    with pytest.raises(StreamRefusedError, match="400"):
        transport.post_invocation_result("another", b"1", "application/json")


def test_a_host_that_ends_while_it_is_waited_for(api: RuntimeApi, transport: Transport) -> None:
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(transport.next)
        api.wait_ready(TIMEOUT_S)
        api.close()
        with pytest.raises(StreamBrokenError):
            waiting.result(TIMEOUT_S)
    with pytest.raises(StreamBrokenError):
        Transport(api.address, "test/1").next()
