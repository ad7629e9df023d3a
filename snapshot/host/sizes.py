# SPDX-License-Identifier: Apache-2.0
"""How large an event and an answer may be, as Lambda has it.

Source: https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html.
"""

from quickthaw.snapshot.errors import FunctionError

EVENT_LIMIT_BYTES = 6 * 1024 * 1024  # for the whole event
RESPONSE_LIMIT_BYTES = EVENT_LIMIT_BYTES + 100  # of an answer that is not streamed; so documented
RESPONSE_TOO_LARGE = f"exceeded maximum allowed payload size ({RESPONSE_LIMIT_BYTES} bytes)."


def response_too_large() -> FunctionError:
    """The error of a function that answers with more."""
    return FunctionError("Function.ResponseSizeTooLarge", f"Response payload size {RESPONSE_TOO_LARGE}")
