# SPDX-License-Identifier: Apache-2.0
import json
from base64 import b64encode
from typing import Any

import pytest

from quickthaw.handler.errors import FieldError, MalformedRequestError
from quickthaw.handler.events import DirectEvent, HttpEvent, parse


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
    [{"httpMethod": "GET"}, {"requestContext": {"elb": {}}}, {"requestContext": None, "httpMethod": "GET"}],
)
def test_an_http_event_of_another_format_is_refused(event: object) -> None:
    with pytest.raises(MalformedRequestError, match=r"expected payload format 2\.0"):
        parse(event)


def test_method_and_path() -> None:
    event = parsed_http(method="post", path="/v1/models/")
    assert (event.method, event.path) == ("POST", "/v1/models")
    assert parsed_http(path="/").path == "/"


def test_a_stage_is_no_part_of_the_path() -> None:
    context = {"stage": "prod", "http": {"method": "GET", "path": "/prod/healthz"}}
    assert parsed_http(path="/prod/healthz", requestContext=context).path == "/healthz"
    assert parsed_http(path="/production", requestContext=context).path == "/production"


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
