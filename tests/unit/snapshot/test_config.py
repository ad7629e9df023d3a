# SPDX-License-Identifier: Apache-2.0
"""The bootstrap's start: what it needs, and what it says when that is missing."""

import os

import pytest

from quickthaw.snapshot.config import SnapshotConfig, prepare, replace_environment
from quickthaw.snapshot.errors import BootstrapError


def test_lambdas_variables() -> None:
    environ = {"AWS_LAMBDA_RUNTIME_API": "127.0.0.1:9001", "LAMBDA_TASK_ROOT": "/var/task"}

    config = SnapshotConfig.from_process(["bootstrap", "app.handler"], environ)

    assert config == SnapshotConfig("app.handler", "127.0.0.1:9001", "/var/task")


def test_the_working_folder_is_the_task_root_where_lambda_names_none() -> None:
    config = SnapshotConfig.from_process(["bootstrap", "app.handler"], {"AWS_LAMBDA_RUNTIME_API": "h:1"})

    assert config.task_root == os.getcwd()


@pytest.mark.parametrize("arguments", [["bootstrap"], ["bootstrap", "a.b", "c.d"]])
def test_one_handler_is_needed(arguments: list[str]) -> None:
    with pytest.raises(BootstrapError, match=r"package\.module\.function"):
        SnapshotConfig.from_process(arguments, {"AWS_LAMBDA_RUNTIME_API": "h:1"})


@pytest.mark.parametrize("address", ["", "localhost", ":9001", "localhost:http"])
def test_the_runtime_api_needs_host_and_port(address: str) -> None:
    with pytest.raises(BootstrapError, match=r"AWS_LAMBDA_RUNTIME_API is .*HOST:PORT"):
        SnapshotConfig.from_process(["bootstrap", "a.b"], {"AWS_LAMBDA_RUNTIME_API": address})


def test_several_requests_at_once_are_refused_by_name() -> None:
    environ = {"AWS_LAMBDA_RUNTIME_API": "h:1", "AWS_LAMBDA_MAX_CONCURRENCY": "4"}
    with pytest.raises(BootstrapError, match="AWS_LAMBDA_MAX_CONCURRENCY"):
        SnapshotConfig.from_process(["bootstrap", "a.b"], environ)


def test_a_process_that_is_to_be_captured() -> None:
    environ = {
        "AWS_LAMBDA_RUNTIME_API": "h:1",
        "AWS_LAMBDA_INITIALIZATION_TYPE": "snap-start",
        "QUICKTHAW_RESTORE_GATE": "fifo:/x",
        "QUICKTHAW_WARMUP_EVENT": "event.json",
    }
    config = SnapshotConfig.from_process(["bootstrap", "a.b"], environ)
    assert (config.is_captured, config.restore_gate, config.warmup_event) == (True, "fifo:/x", "event.json")
    environ["AWS_LAMBDA_INITIALIZATION_TYPE"] = "on-demand"
    assert not SnapshotConfig.from_process(["bootstrap", "a.b"], environ).is_captured


def test_what_is_said_to_the_bootstrap_is_not_shown_to_the_function() -> None:
    environ = {"QUICKTHAW_RESTORE_GATE": "x", "QUICKTHAW_WARMUP_EVENT": "x", "OPENBLAS_NUM_THREADS": "2"}
    prepare(environ)
    assert environ == {"OPENBLAS_NUM_THREADS": "2"}


def test_another_environment_leaves_nothing_of_the_first() -> None:
    os.environ["LEFT"] = "1"
    replace_environment({"ONLY": "é", "QUICKTHAW_RESTORE_GATE": "x"})
    assert dict(os.environ) == {"ONLY": "é", "OPENBLAS_NUM_THREADS": "1"}
