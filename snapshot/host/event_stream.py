# SPDX-License-Identifier: Apache-2.0
"""A streamed answer in the encoding of AWS's SDKs: application/vnd.amazon.eventstream.

    ┌ total length u32 │ length of the headers u32 │ CRC-32 of these 8 bytes u32 ┐
    │ for each header: name length u8 │ name │ 7 (it is text) u8 │ length u16 │ value
    │ payload
    └ CRC-32 of all of the above u32

Every number is big-endian. Lambda sends two kinds of messages: PayloadChunk, whose payload is the bytes as
the function wrote them, and at the end InvokeComplete, whose payload is JSON.

Source: https://smithy.io/2.0/aws/amazon-eventstream.html;
https://docs.aws.amazon.com/lambda/latest/api/API_InvokeWithResponseStream.html.
"""

import json
import struct
from collections.abc import Iterator
from zlib import crc32

CONTENT_TYPE = "application/vnd.amazon.eventstream"
_MAX_PAYLOAD_BYTES = 1024 * 1024  # a message may have 16 MiB; who reads it keeps all of it in memory
_TEXT = 7
_PRELUDE_BYTES, _CRC_BYTES = 12, 4


def payload_chunks(data: bytes) -> Iterator[bytes]:
    """The message, or where it would be too large the messages, that carry `data`."""
    for start in range(0, len(data), _MAX_PAYLOAD_BYTES):
        payload = data[start : start + _MAX_PAYLOAD_BYTES]
        yield _message("PayloadChunk", "application/octet-stream", payload)


def invoke_complete(
    error_code: str | None = None, error_details: str | None = None, log_result: str | None = None
) -> bytes:
    """The last message. What is None is left out, as Lambda does."""
    fields = {"ErrorCode": error_code, "ErrorDetails": error_details, "LogResult": log_result}
    document = {name: value for name, value in fields.items() if value is not None}
    return _message("InvokeComplete", "application/json", json.dumps(document).encode())


def _message(event_type: str, content_type: str, payload: bytes) -> bytes:
    headers = b"".join(
        (
            _header(b":event-type", event_type),
            _header(b":content-type", content_type),
            _header(b":message-type", "event"),
        )
    )
    total_bytes = _PRELUDE_BYTES + len(headers) + len(payload) + _CRC_BYTES
    lengths = struct.pack(">II", total_bytes, len(headers))
    message = b"".join((lengths, struct.pack(">I", crc32(lengths)), headers, payload))
    return message + struct.pack(">I", crc32(message))


def _header(name: bytes, value: str) -> bytes:
    text = value.encode()
    return struct.pack(f">B{len(name)}sBH{len(text)}s", len(name), name, _TEXT, len(text), text)
