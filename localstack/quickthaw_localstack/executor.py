# SPDX-License-Identifier: Apache-2.0
"""One execution environment of a function: a process with quickthaw's Runtime API in front of it."""

import json
import os
import time
from collections.abc import Mapping

from localstack.services.lambda_.invocation.lambda_models import FunctionVersion, InvocationResult
from localstack.services.lambda_.invocation.runtime_executor import LambdaRuntimeException, RuntimeExecutor

from localstack import config
from quickthaw.snapshot.errors import FunctionError, FunctionTimeoutError
from quickthaw.snapshot.host.instance import Instance, State
from quickthaw.snapshot.host.invocation import Invocation
from quickthaw.snapshot.host.invoke_error import error_document
from quickthaw_localstack import engines

_ADDRESS = "127.0.0.1"
_INIT_TIMEOUT_S = 60.0


class ProcessExecutor(RuntimeExecutor):
    """What LocalStack asks for a process, for answers and for their logs; from one thread at a time."""

    def __init__(self, id: str, function_version: FunctionVersion) -> None:  # noqa: A002 - LocalStack's name
        super().__init__(id, function_version)
        self._environ: dict[str, str] = {}
        self._instance: Instance | None = None
        self._init_error: FunctionError | None = None
        self._lines: list[str] = []

    def start(self, env_vars: Mapping[str, object]) -> None:
        """Start the process. An init that fails is told by the next invocation, as Lambda does it."""
        if self.function_version.config.code is None:
            raise LambdaRuntimeException(
                "functions that are images need Docker: LAMBDA_RUNTIME_EXECUTOR=docker"
            )
        given = {name: str(value) for name, value in env_vars.items() if value is not None}
        self._environ = {
            "PATH": os.environ["PATH"],
            "LANG": "en_US.UTF-8",
            **given,
            "LAMBDA_TASK_ROOT": str(self.function_version.config.code.get_unzipped_code_location()),
        }
        self._begin()

    def stop(self) -> None:
        """End the process."""
        instance, self._instance = self._instance, None
        if instance is not None:
            instance.stop()

    def invoke(self, payload: dict[str, str]) -> InvocationResult:
        """Answer one event; after a process that has died, in a new one."""
        request_id = payload["invoke-id"]
        if self._instance is None or self._instance.state is State.DEAD:
            self.stop()
            self._begin()
        try:
            answer, is_error = self._answer(payload), False
        except FunctionTimeoutError:
            stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            timeout_s = self.function_version.config.timeout
            message = f"{stamp} {request_id} Task timed out after {timeout_s:.2f} seconds"
            answer, is_error = json.dumps({"errorMessage": message}).encode(), True
        except FunctionError as exc:
            answer, is_error = error_document(exc, request_id), True
        if self._instance is not None:
            self._instance.read_output()
        return InvocationResult(request_id, answer, is_error=is_error, logs=self._take_logs(request_id))

    def get_logs(self) -> str:
        """What the process has printed since its last answer."""
        return "".join(self._lines)

    def get_address(self) -> str:
        """Where the process is, for LocalStack."""
        return _ADDRESS

    def get_endpoint_from_executor(self) -> str:
        """Where LocalStack is, for the process."""
        return _ADDRESS

    def get_runtime_endpoint(self) -> str:
        """LocalStack's own way to its executors, which nothing here takes."""
        return f"http://{_ADDRESS}:{config.GATEWAY_LISTEN[0].port}/_localstack_lambda/{self.id}"

    @classmethod
    def prepare_version(cls, function_version: FunctionVersion) -> None:
        """Unpack its code."""
        if function_version.config.code is not None:
            function_version.config.code.prepare_for_execution()

    @classmethod
    def cleanup_version(cls, function_version: FunctionVersion) -> None:
        """End what was captured of it."""
        engines.drop(function_version)

    @classmethod
    def validate_environment(cls) -> bool:
        """Raises: ValueError for a bad LAMBDA_PROCESS_START."""
        return bool(engines.start_kind())

    def _begin(self) -> None:
        self._init_error = None
        try:
            self._instance = Instance(
                engines.engine_of(self.function_version),
                self._environ,
                self._take_line,
                self.function_version.qualified_arn,
            )
            self._instance.wait_ready(_INIT_TIMEOUT_S)
        except FunctionError as exc:
            self._init_error = exc

    def _take_logs(self, request_id: str) -> str:
        """What was printed since the last answer: an init's lines too, and what came after that answer."""
        lines, self._lines = self._lines, []
        qualifier = self.function_version.id.qualifier
        begin, end = f"START RequestId: {request_id} Version: {qualifier}\n", f"END RequestId: {request_id}\n"
        return "".join((begin, *lines, end))

    def _take_line(self, line: str) -> None:
        self._lines.append(line)

    def _answer(self, payload: Mapping[str, str]) -> bytes:
        """Raises: FunctionError."""
        if self._init_error is not None:
            raise self._init_error
        assert self._instance is not None
        timeout_s = float(self.function_version.config.timeout)
        invocation = Invocation(payload["payload"].encode(), timeout_s, payload.get("trace-id"))
        invocation.request_id = payload["invoke-id"]
        self._instance.run(invocation)
        return b"".join(chunk.data for chunk in invocation)
