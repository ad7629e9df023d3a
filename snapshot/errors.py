# SPDX-License-Identifier: Apache-2.0
"""What can go wrong while a function is hosted.

SnapshotError
├── BootstrapError            the function process was started wrongly: no handler, no Runtime API address
├── StreamError               a streamed answer
│   ├── StreamSetupError      it cannot be sent as asked: a chunk that is not bytes
│   ├── StreamBrokenError     the connection to the Runtime API is gone
│   └── StreamRefusedError    the Runtime API answered with something other than success
├── WireError                 a connection of the host's: the peer is gone, or what it sent is not HTTP
└── FunctionError             the function did not answer an event, as its host sees it
    ├── FunctionInitError     it failed, or took too long, before it asked for its first event
    ├── FunctionExitedError   its process ended without an answer
    └── FunctionTimeoutError  it was still working at its deadline
"""


class SnapshotError(Exception):
    """Base of every error of this package."""


class BootstrapError(SnapshotError):
    """The function process was started without something it needs."""


class StreamError(SnapshotError):
    """A streamed answer failed."""


class StreamSetupError(StreamError):
    """The handler asked for a stream that cannot be put on the wire."""


class StreamBrokenError(StreamError):
    """The connection carrying the stream is gone."""

    def __init__(self, address: str, reason: object) -> None:
        self.address = address
        super().__init__(f"the Runtime API at {address} closed the streamed response: {reason}")


class StreamRefusedError(StreamError):
    """The Runtime API did not accept the stream."""

    def __init__(self, address: str, status: int) -> None:
        self.address = address
        self.status = status
        super().__init__(
            f"the Runtime API at {address} answered the streamed response with {status}, not 202"
        )


class WireError(SnapshotError):
    """A connection of the host's is of no more use."""


class FunctionError(SnapshotError):
    """The function answered an event with an error. Fields as in Lambda's error document."""

    def __init__(self, error_type: str, message: str, stack_trace: tuple[str, ...] = ()) -> None:
        self.error_type = error_type
        self.message = message
        self.stack_trace = stack_trace
        super().__init__(f"{error_type}: {message}")


class FunctionInitError(FunctionError):
    """The function failed, or took too long, before it asked for its first event."""


class FunctionExitedError(FunctionError):
    """The function's process ended before it had answered."""


class FunctionTimeoutError(FunctionError):
    """The function was still working at its deadline, and was killed."""
