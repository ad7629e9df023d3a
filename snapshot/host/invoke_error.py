# SPDX-License-Identifier: Apache-2.0
"""What a client of the Invoke API sees of an invocation that failed, in Lambda's own words.

the function failed   200, X-Amz-Function-Error: Unhandled, {"errorMessage", "errorType", …}
it was never asked    the status and the X-Amzn-ErrorType of an exception that SDKs know
"""

import json

from quickthaw.snapshot.errors import (
    FunctionError,
    FunctionExitedError,
    HostStoppedError,
    InvocationRefusedError,
    RequestTooLargeError,
    SnapshotError,
    TooManyRequestsError,
)
from quickthaw.snapshot.host.http_answer import Head


def error_document(error: FunctionError, request_id: str) -> bytes:
    """Lambda's error document. What the function did not say itself begins with the request's id."""
    message = error.message
    if isinstance(error, FunctionExitedError):
        message = f"RequestId: {request_id} Error: {message}"
    document: dict[str, object] = {"errorMessage": message, "errorType": error.error_type}
    if error.stack_trace:
        document |= {"requestId": request_id, "stackTrace": list(error.stack_trace)}
    return json.dumps(document).encode()


def refusal(error: SnapshotError) -> tuple[Head, bytes]:
    """The response for an event that did not get to the function."""
    status, kind, message, more = 500, "ServiceException", str(error), {}
    if isinstance(error, InvocationRefusedError):
        status, kind = error.status, error.kind
    elif isinstance(error, RequestTooLargeError):
        status, kind = 413, "RequestTooLargeException"
    elif isinstance(error, TooManyRequestsError):
        status, kind = 429, "TooManyRequestsException"
        message, more = "Rate Exceeded.", {"Reason": "ConcurrentInvocationLimitExceeded"}
    elif isinstance(error, HostStoppedError):
        status = 503
    headers = [("content-type", "application/json"), ("x-amzn-errortype", kind)]
    # SDKs read either spelling, and Lambda has both.
    body = {"Type": "User" if status < 500 else "Service", "Message": message, "message": message, **more}
    return Head(status, headers), json.dumps(body).encode()
