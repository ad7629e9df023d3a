# SPDX-License-Identifier: Apache-2.0
"""What can go wrong while a function is hosted.

SnapshotError
├── BootstrapError            the function process was started wrongly: no handler, no Runtime API address
│   └── CaptureRefusedError   it runs threads, which a clone would not have
├── StreamError               a streamed answer
│   ├── StreamSetupError      it cannot be sent as asked: a chunk that is not bytes
│   ├── StreamBrokenError     the connection to the Runtime API is gone
│   └── StreamRefusedError    the Runtime API answered with something other than success
├── ImageError                a state image cannot be used; whoever meant to goes on without
│   └── ImageWriteError       it cannot be written
├── CriuError                 a process cannot be put on disk, or brought back from there
│   ├── CriuMissingError      the program criu is not there, or too old
│   ├── CriuNotPermittedError it needs root
│   └── CriuFailedError       it could not do it; it has said why
├── CaptureError              a directory, as one with a process on disk
│   ├── CaptureMissingError   there is none in it that may be used
│   ├── CaptureStaleError     what it was captured from has changed since
│   └── CaptureDirectoryError it cannot be put there
├── WireError                 a connection of the host's: the peer is gone, or what it sent is not HTTP
├── HostError                 the host did not get an event to the function
│   ├── TooManyRequestsError  as many wait for the function as may
│   ├── RequestTooLargeError  the event is larger than Lambda lets it be
│   ├── InvocationRefusedError  a call of the Invoke API that is none: another function, or no JSON
│   ├── HostStoppedError      the host is being stopped
│   ├── AddressError          the address to be listened on is taken, or is none
│   └── HostExtraMissingError what serves HTTP is not installed
└── FunctionError             the function did not answer an event, as its host sees it
    ├── FunctionInitError     it failed, or took too long, before it asked for its first event
    │   └── FunctionRestoreError  in a hook, after it had been restored
    ├── BadAnswerError        it answered an HTTP request with what is no HTTP response
    ├── FunctionExitedError   its process ended without an answer
    └── FunctionTimeoutError  it was still working at its deadline
"""

from collections.abc import Sequence


class SnapshotError(Exception):
    """Base of every error of this package."""


class BootstrapError(SnapshotError):
    """The function process was started without something it needs."""


class CaptureRefusedError(BootstrapError):
    """The function process runs threads, which a clone would not have."""

    def __init__(self, threads: Sequence[str]) -> None:
        self.threads = threads
        super().__init__(
            f"the function cannot be captured while it runs threads: {', '.join(threads)}; "
            "end them in a hook before the snapshot, or start them with the first request"
        )


class StreamError(SnapshotError):
    """A streamed answer failed."""


class StreamSetupError(StreamError):
    """The handler asked for a stream that cannot be put on the wire."""


class StreamBrokenError(StreamError):
    """The connection to the Runtime API is gone."""

    def __init__(self, address: str, reason: object) -> None:
        self.address = address
        super().__init__(f"the Runtime API at {address} broke off: {reason}")


class StreamRefusedError(StreamError):
    """The Runtime API did not accept an answer."""

    def __init__(self, address: str, status: int) -> None:
        self.address = address
        self.status = status
        super().__init__(f"the Runtime API at {address} answered with {status}, not 202")


class ImageError(SnapshotError):
    """A state image cannot be used."""


class ImageWriteError(ImageError):
    """A state image cannot be written."""


class CriuError(SnapshotError):
    """A process cannot be put on disk, or brought back from there."""


class CriuMissingError(CriuError):
    """The program criu is not there, or too old."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"{reason}; install CRIU 4 or later (https://criu.org), or use another kind of start"
        )


class CriuNotPermittedError(CriuError):
    """CRIU takes processes apart, and makes namespaces: only root may."""

    def __init__(self, user_id: int) -> None:
        super().__init__(f"criu needs root, and this is user {user_id}; use sudo, or another kind of start")


class CriuFailedError(CriuError):
    """CRIU could not do it. `action` is its sub-command."""

    def __init__(self, action: str, reason: str) -> None:
        self.action = action
        advice = "; this kernel cannot do what it needs: use another kind of start" * (action == "check")
        super().__init__(f"criu {action} failed: {reason}{advice}")


class CaptureError(SnapshotError):
    """A directory cannot be used as one with a process on disk."""


class CaptureMissingError(CaptureError):
    """No process on disk is there that may be used."""

    def __init__(self, directory: object, reason: str) -> None:
        self.directory = directory
        super().__init__(f"no capture in {directory}: {reason}; make one with `quickthaw snapshot capture`")


class CaptureStaleError(CaptureError):
    """What the process was captured from has changed since."""

    def __init__(self, directory: object, changes: Sequence[str]) -> None:
        self.directory = directory
        self.changes = changes
        super().__init__(f"the capture in {directory} is out of date: {'; '.join(changes)}")


class CaptureDirectoryError(CaptureError):
    """A process cannot be put there."""

    def __init__(self, directory: object, reason: object) -> None:
        self.directory = directory
        super().__init__(f"cannot make a capture in {directory}: {reason}; name an empty or a new directory")


class WireError(SnapshotError):
    """A connection of the host's is of no more use."""


class HostError(SnapshotError):
    """The host did not get an event to the function."""


class TooManyRequestsError(HostError):
    """As many requests wait for the function as may."""

    def __init__(self, n_waiting: int) -> None:
        self.n_waiting = n_waiting
        super().__init__(f"the function is busy and {n_waiting} requests wait for it; try again later")


class RequestTooLargeError(HostError):
    """The event is larger than Lambda lets it be."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        super().__init__(f"the request is too large: as an event it may have {limit_bytes} bytes")


class InvocationRefusedError(HostError):
    """A call of the Invoke API that will never succeed as it is; `kind` is the exception that SDKs raise."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        self.status = status
        self.kind = kind
        super().__init__(message)


class HostStoppedError(HostError):
    """The host is being stopped."""

    def __init__(self) -> None:
        super().__init__("the host is being stopped")


class AddressError(HostError):
    """The address to be listened on is taken, or is none."""

    def __init__(self, address: str, reason: str) -> None:
        self.address = address
        super().__init__(f"cannot listen on {address}: {reason}; choose another port")


class HostExtraMissingError(HostError):
    """What serves HTTP is not installed."""

    def __init__(self) -> None:
        super().__init__(
            "uvicorn, which serves HTTP here, is not installed: it comes with the extra `host`, "
            "as in pip install '.[host]'"
        )


class FunctionError(SnapshotError):
    """The function answered an event with an error. Fields as in Lambda's error document."""

    def __init__(self, error_type: str, message: str, stack_trace: tuple[str, ...] = ()) -> None:
        self.error_type = error_type
        self.message = message
        self.stack_trace = stack_trace
        super().__init__(f"{error_type}: {message}")


class FunctionInitError(FunctionError):
    """The function failed, or took too long, before it asked for its first event."""


class FunctionRestoreError(FunctionInitError):
    """A hook failed after the function had been restored."""


class BadAnswerError(FunctionError):
    """The function answered an HTTP request with what is no HTTP response."""

    def __init__(self, reason: str) -> None:
        super().__init__("Gateway.BadAnswer", f"the function's answer is no HTTP response: {reason}")


class FunctionExitedError(FunctionError):
    """The function's process ended before it had answered."""


class FunctionTimeoutError(FunctionError):
    """The function was still working at its deadline, and was killed."""
