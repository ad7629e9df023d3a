# SPDX-License-Identifier: Apache-2.0
import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from quickthaw.handler.errors import (
    OUTCOMES,
    BodyTooLargeError,
    FieldError,
    MalformedRequestError,
    MethodNotAllowedError,
)
from quickthaw.handler.events import DirectEvent, parse
from quickthaw.handler.http.http_event import HttpEvent

EVENTS = Path(__file__).parents[2] / "events"


def recorded(name: str) -> dict[str, Any]:
    """An event as its sender makes it."""
    event: dict[str, Any] = json.loads((EVENTS / f"{name}.json").read_text())
    return event


def http_event(
    body: object = None, method: str = "POST", path: str = "/v1/completions", **fields: Any
) -> dict[str, Any]:
    """As a function URL sends it, shortened."""
    return {
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": path,
        "rawQueryString": "",
        "headers": {"content-type": "application/json"},
        "requestContext": {
            "http": {"method": method, "path": path, "protocol": "HTTP/1.1"},
            "stage": "$default",
        },
        "body": body,
        "isBase64Encoded": False,
        **fields,
    }


def parsed_http(*args: Any, **kwargs: Any) -> HttpEvent:
    event = parse(http_event(*args, **kwargs))
    assert isinstance(event, HttpEvent)
    return event


def test_an_object_is_a_direct_invocation() -> None:
    event = parse({"prompt": "x"})
    assert isinstance(event, DirectEvent)
    assert event.body() == {"prompt": "x"}


@pytest.mark.parametrize("event", [None, [], "text", 7, True])
def test_a_direct_invocation_is_an_object(event: object) -> None:
    with pytest.raises(MalformedRequestError, match="the event: expected a JSON object, found"):
        parse(event).body()


@pytest.mark.parametrize(
    "event",
    [
        {"httpMethod": "GET"},
        {"requestContext": {"elb": {}}},
        {"requestContext": {}, "httpMethod": None},
        {"requestContext": None, "httpMethod": "GET"},
        {"requestContext": {"connectionId": "x", "eventType": "CONNECT"}},  # a WebSocket's
    ],
)
def test_an_http_event_of_another_format_is_refused(event: object) -> None:
    with pytest.raises(MalformedRequestError, match=r"expected payload format 1\.0 or 2\.0"):
        parse(event)


def test_method_and_path() -> None:
    event = parsed_http(method="post", path="/v1/models/")
    assert (event.method, event.path) == ("POST", "/v1/models")
    assert parsed_http(path="/").path == "/"


def path_of(event: dict[str, Any]) -> str:
    wire = parse(event)
    assert isinstance(wire, HttpEvent)
    return wire.path


def test_a_stage_is_no_part_of_the_path() -> None:
    context = {"stage": "prod", "http": {"method": "GET", "path": "/prod/healthz"}}
    assert parsed_http(path="/prod/healthz", requestContext=context).path == "/healthz"
    assert parsed_http(path="/prod", requestContext=context).path == "/"
    assert parsed_http(path="/production", requestContext=context).path == "/production"


@pytest.mark.parametrize(
    ("path", "resource", "parameters", "inside"),
    [
        ("/v1/models", "/{proxy+}", {"proxy": "v1/models"}, "/v1/models"),
        ("/llm/v1/models", "/{proxy+}", {"proxy": "v1/models"}, "/v1/models"),
        ("/llm/a/v1/models/m", "/v1/models/{id}", {"id": "m"}, "/v1/models/m"),
        ("/llm/v1/models/", "/v1/models", None, "/v1/models"),
        ("/v1/models/a%20b", "/v1/models/{id}", {"id": "a b"}, "/v1/models/a%20b"),
        ("/v1/models", "$default", None, "/v1/models"),
        ("/prod/v1/models", "$default", None, "/v1/models"),
        ("/v1/models", None, None, "/v1/models"),
    ],
)
def test_a_base_path_is_no_part_of_the_path(
    path: str, resource: str | None, parameters: object, inside: str
) -> None:
    context = {"stage": "prod"}
    event = {"httpMethod": "GET", "path": path, "resource": resource, "pathParameters": parameters}
    assert path_of({**event, "requestContext": context}) == inside
    context2 = {**context, "http": {"method": "GET"}}
    event2 = {"rawPath": path, "routeKey": resource and f"GET {resource}", "pathParameters": parameters}
    assert path_of({**event2, "requestContext": context2}) == inside


def test_headers_have_any_case_and_several_values() -> None:
    event = parsed_http(headers={"X-One": "1", "ORIGIN": "o"})
    assert [event.header(name) for name in ("x-one", "origin", "absent")] == ["1", "o", None]
    single, several = {"A": "last", "B": "b"}, {"A": ["first", "last"], "C": ["c"], "D": None}
    event = parsed_http(headers=single, multiValueHeaders=several)
    assert [event.header(name) for name in "abcd"] == ["first,last", "b", "c", None]
    assert parsed_http(headers=None).header("a") is None


def test_a_plain_body_and_a_base64_one() -> None:
    text = json.dumps({"prompt": "é"})
    assert parsed_http(text).body() == {"prompt": "é"}
    encoded = b64encode(text.encode()).decode()
    assert parsed_http(encoded, isBase64Encoded=True).body() == {"prompt": "é"}


@pytest.mark.parametrize(
    ("body", "is_base64", "message"),
    [
        (None, False, "the body is not JSON"),
        ("", False, "the body is not JSON"),
        ("{", False, "the body is not JSON"),
        ('{"temperature": NaN}', False, "NaN is not a JSON number"),
        ('{"temperature": -Infinity}', False, "-Infinity is not a JSON number"),
        ("[" * 100_000, False, "the body is not JSON"),
        ("1" * 5000, False, "the body is not JSON"),
        ("[1]", False, "the body: expected a JSON object, found a list of 1"),
        ('"x"', False, r'the body: expected a JSON object, found "x" \(a string\)'),
        ({"a": 1}, False, "the body: expected text, found an object"),
        ("not base64!", True, "the body is not base64"),
        (b64encode(b'{"a": "\xff"}').decode(), True, "the body is not UTF-8: byte 7 is 0xff"),
    ],
)
def test_a_bad_body_is_refused(body: object, is_base64: bool, message: str) -> None:
    with pytest.raises(MalformedRequestError, match=message):
        parsed_http(body, isBase64Encoded=is_base64).body()


def test_a_body_longer_than_lambdas_limit_is_refused() -> None:
    with pytest.raises(BodyTooLargeError, match="expected at most 6291456 bytes, found 6291457"):
        parsed_http("x" * (6 * 1024**2 + 1)).body()


def test_a_document_and_an_error_over_http() -> None:
    event = parsed_http()
    assert event.whole({"a": "é"}) == {
        "statusCode": 200,
        "headers": {"content-type": "application/json"},
        "body": '{"a":"\\u00e9"}',
        "isBase64Encoded": False,
    }
    error = event.error(FieldError("a", "b", "c"))
    assert error["statusCode"] == 400
    assert json.loads(error["body"])["error"]["param"] == "a"


def test_head_has_no_body() -> None:
    assert parsed_http(method="HEAD").whole({"a": 1})["body"] == ""


def test_a_stream_over_http_begins_with_status_and_headers() -> None:
    prelude, *rest = list(parsed_http().stream([{"a": 1}]))
    head, _, body = prelude.partition(bytes(8))
    document = json.loads(head)
    assert document["statusCode"] == 200
    assert document["headers"]["content-type"] == "text/event-stream"
    assert [body, *rest] == [b"", b'data: {"a":1}\n\n', b"data: [DONE]\n\n"]


def test_a_direct_stream_and_a_direct_error() -> None:
    event = DirectEvent({})
    stream = event.stream([{"a": 1}])
    assert stream.content_type == "text/event-stream"
    assert list(stream) == [b'data: {"a":1}\n\n', b"data: [DONE]\n\n"]
    assert event.error(FieldError("a", "b", "c"))["error"]["param"] == "a"


# --- as they are sent ---


@pytest.mark.parametrize("name", ["rest_api_completion", "http_api_completion", "load_balancer_completion"])
def test_every_sender_is_understood(name: str) -> None:
    event = parse(recorded(name))
    assert isinstance(event, HttpEvent)
    assert (event.method, event.path) == ("POST", "/v1/completions")
    assert event.body() == {"prompt": "é?", "max_tokens": 2, "temperature": 0}
    response = event.whole({"a": 1})
    assert (response["statusCode"], response["body"]) == (200, '{"a":1}')
    assert response["headers"] == {"content-type": "application/json"}
    assert response["isBase64Encoded"] is False


def test_who_can_pass_a_stream_on() -> None:
    senders = ("function_url_stream", "rest_api_stream", "http_api_completion", "load_balancer_completion")
    assert [parse(recorded(name)).can_be_streamed for name in senders] == [True, True, False, False]


def test_a_load_balancer_is_told_a_reason() -> None:
    event = parse(recorded("load_balancer_completion"))
    assert event.whole({})["statusDescription"] == "200 OK"
    refused = event.error(MethodNotAllowedError("/x", ("GET",), "POST"))
    assert refused["statusDescription"] == "405 Method Not Allowed"
    assert refused["headers"]["allow"] == "GET"


def test_every_status_has_its_reason() -> None:
    event = parse(recorded("load_balancer_completion"))
    assert isinstance(event, HttpEvent)
    for status in {outcome.status for outcome in OUTCOMES.values()}:
        assert event.response(status)["statusDescription"].startswith(f"{status} ")


def test_a_load_balancer_that_sends_many_values_gets_many() -> None:
    sent = recorded("load_balancer_completion")
    sent["multiValueHeaders"] = {name: [value] for name, value in sent.pop("headers").items()}
    event = parse(sent)
    assert isinstance(event, HttpEvent)
    assert event.header("x-forwarded-port") == "80"
    response = event.whole({})
    assert response["multiValueHeaders"] == {"content-type": ["application/json"]}
    assert "headers" not in response


def test_where_everything_is_streamed_a_document_and_an_error_are_too() -> None:
    event = parsed_http()
    event.is_always_streamed = True
    prelude, _, body = b"".join(event.error(FieldError("a", "b", "c"))).partition(bytes(8))
    head = json.loads(prelude)
    assert (head["statusCode"], head["headers"]["content-type"]) == (400, "application/json")
    assert json.loads(body)["error"]["param"] == "a"
    sent = parse(recorded("load_balancer_completion"))
    sent.is_always_streamed = True  # type: ignore[union-attr]
    assert sent.whole({})["statusCode"] == 200
