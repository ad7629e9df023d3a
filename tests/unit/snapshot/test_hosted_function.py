# SPDX-License-Identifier: Apache-2.0
import pytest

from quickthaw.snapshot.host.hosted_function import HostedFunction

ARN = "arn:aws:lambda:eu-west-1:123456789012:function"


@pytest.mark.parametrize(
    ("name", "is_it"),
    [
        ("mine", True),
        ("mine:$LATEST", True),
        ("123456789012:function:mine", True),
        (f"{ARN}:mine", True),
        (f"{ARN}:mine:$LATEST", True),
        ("arn:aws-cn:lambda:cn-north-1:123456789012:function:mine", True),
        ("", False),
        ("other", False),
        ("mine:7", False),
        (f"{ARN}:other", False),
        (f"{ARN}:mine:live", False),
        (f"{ARN}:", False),
        ("mine:$LATEST:x", False),
    ],
)
def test_who_is_meant(name: str, is_it: bool) -> None:
    assert HostedFunction("a.b", "mine").is_named(name) == is_it


@pytest.mark.parametrize("name", ["function", "function:$LATEST", f"{ARN}:function"])
def test_a_function_that_is_called_function(name: str) -> None:
    assert HostedFunction("a.b").is_named(name)


def test_what_a_person_has_set_about_region_and_time_stays_and_the_rest_is_ours() -> None:
    base = {"AWS_REGION": "eu-west-1", "TZ": "Europe/Paris", "AWS_LAMBDA_FUNCTION_NAME": "x", "PATH": "/bin"}
    environ = HostedFunction("a.b", "mine", memory_mib=512).environment(base, "zygote")

    assert (environ["AWS_REGION"], environ["TZ"], environ["PATH"]) == ("eu-west-1", "Europe/Paris", "/bin")
    assert environ["AWS_LAMBDA_FUNCTION_NAME"] == "mine"
    assert environ["AWS_LAMBDA_FUNCTION_MEMORY_SIZE"] == "512"
    assert environ["AWS_LAMBDA_INITIALIZATION_TYPE"] == "snap-start"


def test_each_process_has_a_log_stream_of_its_own() -> None:
    function = HostedFunction("a.b")
    streams = {function.environment({}, "cold")["AWS_LAMBDA_LOG_STREAM_NAME"] for _ in range(10)}
    assert len(streams) == 10


def test_without_a_limit_a_function_has_the_machines_memory() -> None:
    assert HostedFunction("a.b").memory_size_mib > 100
