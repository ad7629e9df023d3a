# SPDX-License-Identifier: Apache-2.0
"""Events in, results out: as awslambdaric does it, but orjson writes results and streams pass through."""

from typing import Any

from awslambdaric.lambda_runtime_marshaller import LambdaMarshaller  # type: ignore[import-untyped]

from quickthaw.snapshot.streaming import StreamedResponse


class Marshaller(LambdaMarshaller):  # type: ignore[misc]
    """Reading stays awslambdaric's: orjson refuses a lone surrogate and rounds an integer over 64 bits."""

    def marshal_response(self, response: object) -> tuple[Any, str]:
        """Return what `post_invocation_result` takes: the body and its content type.

        Raises: whatever a stream raises before its first chunk; FaultException when the result is not JSON.
        """
        if isinstance(response, StreamedResponse):
            response.prime()
            return response, response.content_type
        if isinstance(response, bytes):
            return super().marshal_response(response)  # type: ignore[no-any-return]
        # Here, not above: orjson costs 1.4 ms (6 where dataclasses are not imported yet), which the first
        # token of a streamed answer need not wait for.
        try:
            import orjson

            return orjson.dumps(response), "application/json"
        except Exception:
            # Decimal, wide integers, keys that are not strings: the stock encoder's answer, or its error. And
            # a user's own orjson.py, which is found first, may be anything. A lone surrogate, which
            # that encoder leaves as it is from 3.12 on, could not be sent: its escape is JSON too.
            body, content_type = super().marshal_response(response)
            return body.encode("utf-8", "backslashreplace").decode(), content_type
