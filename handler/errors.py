# SPDX-License-Identifier: Apache-2.0
"""What a request or the environment can do wrong, and how every error of every package leaves the function.

HandlerError
├── ConfigurationError        an environment variable of ours is unknown or has a bad value
├── ApiKeysError              the file of API keys cannot be read
├── DeviceError               a device that nothing here computes on
├── BusyError                 another request is being answered
├── OutOfTimeError            the invocation's deadline is too near to go on with a token
└── RequestError              a request that will never succeed as it is
    ├── MalformedRequestError     not JSON, not UTF-8, not an object, an event of an unknown kind
    ├── BodyTooLargeError         more than a function is ever sent
    ├── AuthenticationError       no key, or one that is not known
    ├── FieldError                a field has a bad value
    │   ├── UnknownFieldError         nothing is called so
    │   ├── UnsupportedFieldError     a known option that is not computed
    │   └── ContextLengthError        the prompt alone does not fit the model's context
    ├── RouteNotFoundError        no such path
    ├── ModelNotFoundError        another model than the one served
    └── MethodNotAllowedError     the path exists, the method does not
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from quickthaw.layers import errors as layers
from quickthaw.snapshot import errors as snapshot


class HandlerError(Exception):
    """Base of this package's errors."""

    headers: Mapping[str, str] = {}  # what HTTP says beside the status


class ConfigurationError(HandlerError):
    """An environment variable of ours is unknown or has a bad value."""


class ApiKeysError(HandlerError):
    """The file of API keys cannot be read: nobody can be let in."""


class DeviceError(HandlerError):
    """A device that nothing here computes on."""

    def __init__(self, device: str) -> None:
        super().__init__(f"no device {device}: there is no engine for it; expected cpu")


class BusyError(HandlerError):
    """Another request is being answered; the same request may succeed later."""

    headers: Mapping[str, str] = {"retry-after": "1"}


class OutOfTimeError(HandlerError):
    """The invocation's deadline is too near to go on with a token; the answer ends with those before it."""


class RequestError(HandlerError):
    """A request that will never succeed as it is; `field` names what is wrong with it."""

    field: str | None = None


class MalformedRequestError(RequestError):
    """Not JSON, not UTF-8, not an object, or an event of an unknown kind."""


class BodyTooLargeError(RequestError):
    """The body is longer than any that Lambda passes on."""


class AuthenticationError(RequestError):
    """There is no key, or it is not known. The message does not quote it."""

    headers: Mapping[str, str] = {"www-authenticate": "Bearer"}


class FieldError(RequestError):
    """A field of the request has a bad value."""

    def __init__(self, field: str, expected: str, found: str) -> None:
        self.field = field
        self.expected = expected
        self.found = found
        super().__init__(f"{field}: expected {expected}, found {found}")


class UnknownFieldError(FieldError):
    """Nothing is called so; `expected` lists what there is."""

    def __str__(self) -> str:
        return f"{self.field}: unknown field; fields are {self.expected}"


class UnsupportedFieldError(FieldError):
    """An option that clients know, with a value that would have to change the answer, and does not here."""


class ContextLengthError(FieldError):
    """The prompt alone does not fit the model's context."""


class RouteNotFoundError(RequestError):
    """No such path."""


class ModelNotFoundError(RequestError):
    """Another model was asked for than the one that is served."""

    field = "model"


class MethodNotAllowedError(RequestError):
    """The path exists, the method does not."""

    def __init__(self, path: str, allowed: Sequence[str], found: str) -> None:
        self.headers = {"allow": ", ".join(allowed)}
        super().__init__(f"{path}: expected {' or '.join(allowed)}, found {found}")


class Outcome(NamedTuple):
    """What an error is to a caller over HTTP (as OpenAI's API says it), and to one who started a process."""

    status: int
    type: str
    code: str | None
    exit_code: int  # as in sysexits.h


_USAGE, _DATA, _NO_INPUT = 64, 65, 66
_UNAVAILABLE, _SOFTWARE, _CANNOT_CREATE, _IO, _TRY_AGAIN, _CONFIG = 69, 70, 73, 74, 75, 78


def _refused(status: int = 400, code: str | None = None) -> Outcome:
    return Outcome(status, "invalid_request_error", code, _USAGE)


def _broken(exit_code: int, status: int = 500, code: str | None = None) -> Outcome:
    return Outcome(status, "server_error", code, exit_code)


def _unavailable(exit_code: int) -> Outcome:
    return _broken(exit_code, 503, "model_unavailable")


UNEXPECTED = _broken(_SOFTWARE)

OUTCOMES: dict[type[Exception], Outcome] = {
    HandlerError: UNEXPECTED,
    ConfigurationError: _broken(_CONFIG),
    ApiKeysError: _broken(_CONFIG, 503),
    DeviceError: _broken(_CONFIG),
    BusyError: Outcome(429, "rate_limit_error", "rate_limit_exceeded", _TRY_AGAIN),
    OutOfTimeError: _broken(_SOFTWARE, 504),
    RequestError: _refused(),
    MalformedRequestError: _refused(),
    BodyTooLargeError: _refused(413, "request_too_large"),
    AuthenticationError: _refused(401, "invalid_api_key"),
    FieldError: _refused(code="invalid_value"),
    UnknownFieldError: _refused(code="unknown_parameter"),
    UnsupportedFieldError: _refused(code="unsupported_parameter"),
    ContextLengthError: _refused(code="context_length_exceeded"),
    RouteNotFoundError: _refused(404),
    ModelNotFoundError: _refused(404, "model_not_found"),
    MethodNotAllowedError: _refused(405),
    layers.LayersError: UNEXPECTED,
    layers.LayersConfigError: _broken(_CONFIG),
    layers.CheckpointError: _broken(_DATA),
    layers.UnsupportedModelError: _broken(_DATA),
    layers.SplitError: _broken(_CANNOT_CREATE),
    layers.OutputExistsError: _broken(_CANNOT_CREATE),
    layers.SplitRunningError: _broken(_CANNOT_CREATE),
    layers.DiskFullError: _broken(_CANNOT_CREATE),
    layers.ManifestError: _broken(_DATA),
    layers.ManifestVersionError: _broken(_DATA),
    layers.TokenizerError: _broken(_DATA),
    layers.TokenizerMissingError: _broken(_NO_INPUT),
    layers.UnsupportedTokenizerError: _broken(_DATA),
    layers.TokenizerTablesError: _broken(_DATA),
    layers.TokenizerTablesVersionError: _broken(_DATA),
    layers.PromptError: _refused(code="invalid_value"),
    layers.PromptTooLongError: _refused(code="context_length_exceeded"),
    layers.LogitsError: _broken(_DATA),
    layers.BatchError: _unavailable(_UNAVAILABLE),
    layers.BatchFullError: Outcome(429, "rate_limit_error", "rate_limit_exceeded", _TRY_AGAIN),
    layers.BatchClosedError: _unavailable(_UNAVAILABLE),
    layers.AbandonedError: _refused(499),  # as nginx has it: seen in the log alone
    layers.ChatTemplateError: _broken(_DATA),
    layers.ChatRefusedError: _refused(code="invalid_value"),
    layers.BrokenTemplateError: _broken(_DATA),
    layers.MemoryBudgetError: _broken(_CONFIG),
    layers.ShardError: _unavailable(_DATA),
    layers.ShardMissingError: _unavailable(_NO_INPUT),
    layers.ShardTruncatedError: _unavailable(_DATA),
    layers.ShardReplacedError: _unavailable(_DATA),
    layers.ShardDamagedError: _unavailable(_DATA),
    layers.MappingError: _unavailable(_IO),
    layers.StorageError: _unavailable(_IO),
    layers.StorageTimeoutError: _unavailable(_IO),
    snapshot.SnapshotError: UNEXPECTED,
    snapshot.BootstrapError: _broken(_CONFIG),
    snapshot.CaptureRefusedError: _broken(_SOFTWARE),
    snapshot.StreamError: _broken(_IO),
    snapshot.StreamSetupError: UNEXPECTED,
    snapshot.StreamBrokenError: _broken(_IO),
    snapshot.StreamRefusedError: _broken(_IO),
    snapshot.ImageError: _broken(_DATA),
    snapshot.ImageWriteError: _broken(_CANNOT_CREATE),
    snapshot.CriuError: _broken(_UNAVAILABLE, 503),
    snapshot.CriuMissingError: _broken(_UNAVAILABLE, 503),
    snapshot.CriuNotPermittedError: _broken(_UNAVAILABLE, 503),
    snapshot.CriuFailedError: _broken(_UNAVAILABLE, 503),
    snapshot.CaptureError: _broken(_DATA),
    snapshot.CaptureMissingError: _broken(_NO_INPUT),
    snapshot.CaptureStaleError: _broken(_DATA),
    snapshot.CaptureDirectoryError: _broken(_CANNOT_CREATE),
    snapshot.WireError: _broken(_IO),
    snapshot.HostError: UNEXPECTED,
    snapshot.TooManyRequestsError: _refused(429),
    snapshot.RequestTooLargeError: _refused(413),
    snapshot.InvocationRefusedError: _refused(400),
    snapshot.HostStoppedError: _broken(_UNAVAILABLE, 503),
    snapshot.AddressError: _broken(_UNAVAILABLE),
    snapshot.HostExtraMissingError: _broken(_UNAVAILABLE),
    snapshot.FunctionError: _broken(_SOFTWARE, 502),
    snapshot.BadAnswerError: _broken(_SOFTWARE, 502),
    snapshot.FunctionInitError: _broken(_UNAVAILABLE, 502),
    snapshot.FunctionRestoreError: _broken(_UNAVAILABLE, 502),
    snapshot.FunctionExitedError: _broken(_SOFTWARE, 502),
    snapshot.FunctionTimeoutError: _broken(_SOFTWARE, 504),
}


def outcome(exc: BaseException) -> Outcome:
    """How `exc` leaves the function: its own entry, or its nearest base's."""
    return next((OUTCOMES[kind] for kind in type(exc).__mro__ if kind in OUTCOMES), UNEXPECTED)


def is_expected(exc: BaseException) -> bool:
    """Whether `exc` is one of ours: then its message was written for whoever made the request."""
    return isinstance(exc, HandlerError | layers.LayersError | snapshot.SnapshotError)


def is_fault(exc: BaseException) -> bool:
    """Whether the function is to blame, not the request."""
    return outcome(exc).status >= 500


def error_body(exc: BaseException) -> dict[str, Any]:
    """`exc` in the shape of OpenAI's error objects, without anything that was not meant to be read."""
    return _body(exc, str(exc) if is_expected(exc) else "the function failed; its log says why")


def public_error_body(exc: BaseException) -> dict[str, Any]:
    """The same for the public: of what is wrong with the function, such as its files, not a word."""
    if is_expected(exc) and is_fault(exc):
        return _body(exc, f"the function failed with {type(exc).__name__}; its log says why")
    return error_body(exc)


def _body(exc: BaseException, message: str) -> dict[str, Any]:
    kind = outcome(exc)
    return {
        "error": {
            "message": message,
            "type": kind.type,
            "param": getattr(exc, "field", None),
            "code": kind.code,
        }
    }
