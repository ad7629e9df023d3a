# SPDX-License-Identifier: Apache-2.0
"""awslambdaric's client with our seams: when its transport is made, what becomes of a streamed result.

awslambdaric's native transport fixes the Runtime API's address when it is imported, for good. A process
that is to be captured and restored must not have it yet, so it is withheld while awslambdaric is imported
and made when the first event is asked for: after init, and under SnapStart after the restore. What our own
engines restore has one of ours in its place (transport.py), which is there before.
"""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec, module_from_spec
from typing import Any

from quickthaw.snapshot.errors import BootstrapError
from quickthaw.snapshot.marks import mark, restart


@contextmanager
def _transport_withheld() -> Iterator[None]:
    """Make `import runtime_client` fail inside, which awslambdaric puts up with."""
    native = sys.modules.pop("runtime_client", None)
    sys.modules["runtime_client"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules["runtime_client"]
        if native is not None:
            sys.modules["runtime_client"] = native


# Found now, executed later: by then a user's own folder comes first on the path.
_TRANSPORT = find_spec("runtime_client")

with _transport_withheld():
    from awslambdaric import bootstrap, lambda_runtime_client  # type: ignore[import-untyped]

from quickthaw.snapshot import afterwards, config  # noqa: E402
from quickthaw.snapshot.marshaller import Marshaller  # noqa: E402
from quickthaw.snapshot.streaming import StreamedResponse, send  # noqa: E402


def connect_transport() -> None:
    """Make the native transport, once; it reads AWS_LAMBDA_RUNTIME_API now."""
    if lambda_runtime_client.runtime_client is not None:
        return
    if _TRANSPORT is None or _TRANSPORT.loader is None:
        raise BootstrapError("awslambdaric's module runtime_client is not installed")
    runtime_client = module_from_spec(_TRANSPORT)
    _TRANSPORT.loader.exec_module(runtime_client)
    runtime_client.initialize_client(lambda_runtime_client._user_agent())
    lambda_runtime_client.runtime_client = runtime_client


def prepare_transport() -> None:
    """Load what the transport is linked with: of its 2 ms the larger part, and none that knows an address."""
    import ctypes

    with suppress(OSError):  # then it takes them
        ctypes.CDLL("libstdc++.so.6")


class RuntimeClient(lambda_runtime_client.LambdaRuntimeClient):  # type: ignore[misc]
    """One function process's side of the Runtime API."""

    marshaller = Marshaller()
    _is_ready = False

    def __init__(self, runtime_api: str, restore_gate: str | None = None) -> None:
        super().__init__(runtime_api)
        self._restore_gate = restore_gate

    def restore_next(self) -> None:
        """Block in the captured process; return in the restored one."""
        if self._restore_gate is None:
            super().restore_next()
            restart("snapstart")
            return
        from quickthaw.snapshot import gate
        from quickthaw.snapshot.transport import Transport

        user_agent = lambda_runtime_client._user_agent()
        gate.wait(self._restore_gate)
        self.lambda_runtime_address = config.runtime_api()
        lambda_runtime_client.runtime_client = Transport(self.lambda_runtime_address, user_agent)

    def wait_next_invocation(self) -> Any:
        """Block until there is an event."""
        if not self._is_ready:
            connect_transport()
            # What init made stays: no collection need look at it again, or write to pages that clones share.
            gc.freeze()
            gc.enable()
            mark("ready")
            self._is_ready = True
        afterwards.run_deferred()
        return super().wait_next_invocation()

    def post_invocation_result(
        self,
        invoke_id: str,
        result_data: Any,
        content_type: str = "application/json",
        *invocation_id: str | None,
    ) -> None:
        """Answer an event. `invocation_id` is awslambdaric's business: it has one since 4.1."""
        if not isinstance(result_data, StreamedResponse):
            super().post_invocation_result(invoke_id, result_data, content_type, *invocation_id)
            return
        headers = {
            "Content-Type": content_type,
            "Lambda-Runtime-Function-Response-Mode": "streaming",
            "User-Agent": lambda_runtime_client._user_agent(),
        }
        if any(invocation_id):
            headers["Lambda-Runtime-Invocation-Id"] = str(invocation_id[0])
        path = f"/2018-06-01/runtime/invocation/{invoke_id}/response"
        send(result_data, self.lambda_runtime_address, path, headers)


def run(setup: config.SnapshotConfig) -> None:
    """Import the handler and serve events; returns only by SystemExit."""
    afterwards.enable()
    if setup.is_captured and setup.warmup_event is not None:
        _warm_up_with(setup.warmup_event)
    bootstrap.run(setup.handler, RuntimeClient(setup.runtime_api, setup.restore_gate))


def _warm_up_with(path: str) -> None:
    """Have the handler answer an event before its own hooks: the last one registered is the first to run."""
    from quickthaw.snapshot import hooks, warmup

    get_handler = bootstrap._get_handler

    def get_handler_and_register(name: str) -> Any:
        handler = get_handler(name)
        hooks.register_before_snapshot(warmup.answer_file, handler, path)
        return handler

    bootstrap._get_handler = get_handler_and_register
