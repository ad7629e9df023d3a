# SPDX-License-Identifier: Apache-2.0
"""The function in LocalStack, which runs it as a process by our executor: no Docker, no container."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests import greedy
from tests.aws.conftest import TOOLS
from tests.aws.localstack import LocalStack, zipped
from tests.contract.fronts import TIMEOUT_S, wait_until
from tests.processes import is_gone, parent_of

QUESTION: dict[str, Any] = {"prompt": greedy.SMOLLM2_PROMPT, "max_tokens": 8, "temperature": 0}
ECHO = "import os\ndef handler(event, context): return {'pid': os.getpid(), 'event': event}\n"


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    if not (TOOLS / "localstack" / "with-executor").exists():
        pytest.skip("LocalStack is not installed: make tools")
    folder = tmp_path_factory.mktemp("localstack")
    stack = LocalStack(folder)
    try:
        stack.up()
        yield stack
    finally:
        stack.make("localstack-down")
    assert not folder.exists()


def invoke(stack: LocalStack, name: str, event: object) -> Any:
    answer = stack.client("lambda").invoke(FunctionName=name, Payload=json.dumps(event))
    return json.loads(answer["Payload"].read()) | {"failed": answer.get("FunctionError")}


def post(url: str, document: object) -> tuple[int, Any]:
    parts = urlsplit(url)
    assert parts.hostname is not None
    connection = HTTPConnection("127.0.0.1", parts.port, timeout=TIMEOUT_S)
    headers = {"host": parts.netloc, "content-type": "application/json"}
    connection.request("POST", parts.path, json.dumps(document), headers)
    response = connection.getresponse()
    found = response.status, json.loads(response.read())
    connection.close()
    return found


def log_lines(stack: LocalStack, name: str) -> list[str]:
    events = stack.client("logs").filter_log_events(logGroupName=f"/aws/lambda/{name}")["events"]
    return [event["message"] for event in events]


def test_it_answers_with_shards_out_of_the_bucket(stack: LocalStack) -> None:
    answer = invoke(stack, "quickthaw", QUESTION)
    assert answer["token_ids"] == greedy.read_golden()[greedy.SMOLLM2].token_ids[:8]
    keys = stack.client("s3").list_objects_v2(Bucket="quickthaw", Prefix="shards/")["Contents"]
    assert "shards/manifest.json" in {each["Key"] for each in keys}


def test_it_answers_behind_the_rest_api_and_its_url(stack: LocalStack) -> None:
    outputs = stack.client("cloudformation").describe_stacks(StackName="quickthaw")["Stacks"][0]["Outputs"]
    (function_url,) = (each["OutputValue"] for each in outputs if each["OutputKey"] == "FunctionUrl")
    for url in (stack.url, function_url.rstrip("/")):
        status, answer = post(f"{url}/v1/completions", QUESTION)
        assert status == 200, answer
        assert answer["choices"][0]["text"].startswith(" Paris.")
    assert post(f"{stack.url}/v1/completions", {"prompt": 7})[0] == 400


def test_it_is_a_fork_of_what_was_captured(stack: LocalStack) -> None:
    found = invoke(stack, "quickthaw", {"quickthaw": "warm"})
    assert (found["quickthaw"], found["start"]) == ("warm", "zygote")


def test_the_rule_keeps_it_warm(stack: LocalStack) -> None:
    """rate(1 minute), so this may take one; the line of a ping comes with whatever is answered next."""

    def has_pinged() -> bool:
        invoke(stack, "quickthaw", {**QUESTION, "max_tokens": 1})
        return any('"quickthaw":"ping"' in line for line in log_lines(stack, "quickthaw"))

    wait_until(has_pinged, timeout_s=90.0)


def test_an_error_is_lambdas(stack: LocalStack) -> None:
    stack.create("fails", "def handler(event, context): raise KeyError('colour')\n")
    answer = invoke(stack, "fails", {})
    assert (answer["failed"], answer["errorType"]) == ("Unhandled", "KeyError")
    assert "colour" in answer["errorMessage"]


def test_an_init_that_fails_is_told(stack: LocalStack) -> None:
    stack.create("broken", "import nothing_of_that_name\n")
    answer = invoke(stack, "broken", {})
    assert answer["failed"] == "Unhandled"
    assert "nothing_of_that_name" in answer["errorMessage"]


def test_a_timeout_ends_the_process_and_the_next_request_is_answered(stack: LocalStack) -> None:
    source = (
        "import os, time\n"
        "def handler(event, context):\n"
        "    time.sleep(event['sleep_s'])\n"
        "    return {'pid': os.getpid()}\n"
    )
    stack.create("sleeps", source, timeout_s=1)
    before = invoke(stack, "sleeps", {"sleep_s": 0})["pid"]
    assert "Task timed out after 1.00 seconds" in invoke(stack, "sleeps", {"sleep_s": 60})["errorMessage"]
    wait_until(lambda: is_gone(before))
    assert invoke(stack, "sleeps", {"sleep_s": 0})["pid"] != before


def test_eight_at_once_are_each_answered_by_a_process_of_their_own(stack: LocalStack) -> None:
    stack.create("echo", "import time\n" + ECHO.replace("return", "time.sleep(1); return"))
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda number: invoke(stack, "echo", {"number": number}), range(8)))
    assert [answer["event"]["number"] for answer in answers] == list(range(8))
    assert len({answer["pid"] for answer in answers}) == 8


def test_new_code_is_run_and_a_deleted_function_leaves_no_process(stack: LocalStack) -> None:
    functions = stack.client("lambda")
    stack.create("changes", ECHO)
    old = invoke(stack, "changes", {})["pid"]
    functions.update_function_code(
        FunctionName="changes", ZipFile=zipped(ECHO.replace("'event'", "'new': 1, 'event'"))
    )
    functions.get_waiter("function_updated_v2").wait(FunctionName="changes")
    answer = invoke(stack, "changes", {})
    assert answer["new"] == 1
    wait_until(lambda: is_gone(old))
    captured = parent_of(answer["pid"])
    functions.delete_function(FunctionName="changes")
    wait_until(lambda: is_gone(answer["pid"]) and is_gone(captured))


def test_bringing_it_up_again_changes_nothing(stack: LocalStack) -> None:
    pid, url = stack.pid, stack.url
    stack.up()
    assert (stack.pid, stack.url) == (pid, url)


def test_after_a_kill_it_comes_up_anew_and_nothing_old_is_left(stack: LocalStack) -> None:
    stack.create("echo-again", ECHO)
    process = invoke(stack, "echo-again", {})["pid"]
    captured = parent_of(process)
    stack.kill()
    wait_until(lambda: is_gone(process) and is_gone(captured))
    stack.up()
    assert post(f"{stack.url}/v1/completions", QUESTION)[0] == 200
