# SPDX-License-Identifier: Apache-2.0
"""LocalStack's Lambda without Docker: LAMBDA_RUNTIME_EXECUTOR=process runs functions as processes."""

from localstack.services.lambda_.invocation.plugins import RuntimeExecutorPlugin


class ProcessExecutorPlugin(RuntimeExecutorPlugin):
    """What LocalStack finds by its entry point."""

    name = "process"

    def load(self, *_args: object, **_options: object) -> type:
        """The executor's class."""
        from quickthaw_localstack.executor import ProcessExecutor

        return ProcessExecutor
