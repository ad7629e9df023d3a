# SPDX-License-Identifier: Apache-2.0
"""Messages as botocore's own parser reads them, and one byte by byte."""

import json

import pytest
from botocore.eventstream import ChecksumMismatch, EventStreamBuffer

from quickthaw.snapshot.host import event_stream


def _read(data: bytes, piece_bytes: int = 2**20) -> list[tuple[dict[str, object], bytes]]:
    buffer = EventStreamBuffer()
    messages = []
    for start in range(0, len(data), piece_bytes):
        buffer.add_data(data[start : start + piece_bytes])
        messages += [(message.headers, message.payload) for message in buffer]
    return messages


@pytest.mark.parametrize("payload", [b"x", b"\0" * 100, "é".encode() * 1000, bytes(range(256))])
@pytest.mark.parametrize("piece_bytes", [1, 7, 2**20])
def test_a_chunk_arrives_as_it_was(payload: bytes, piece_bytes: int) -> None:
    messages = _read(b"".join(event_stream.payload_chunks(payload)), piece_bytes)

    headers = {
        ":event-type": "PayloadChunk",
        ":content-type": "application/octet-stream",
        ":message-type": "event",
    }
    assert messages == [(headers, payload)]


def test_a_large_chunk_is_several_messages() -> None:
    payload = bytes(range(256)) * 10_000
    messages = _read(b"".join(event_stream.payload_chunks(payload)))
    assert len(messages) == 3
    assert b"".join(data for _, data in messages) == payload


def test_no_bytes_are_no_message() -> None:
    assert list(event_stream.payload_chunks(b"")) == []


def test_the_end() -> None:
    ((headers, payload),) = _read(event_stream.invoke_complete())
    assert (headers[":event-type"], json.loads(payload)) == ("InvokeComplete", {})

    ((_, payload),) = _read(event_stream.invoke_complete("E", "é", "TE9H"))
    assert json.loads(payload) == {"ErrorCode": "E", "ErrorDetails": "é", "LogResult": "TE9H"}


def test_the_bytes_of_a_message() -> None:
    (message,) = event_stream.payload_chunks(b"hi")
    n_header_bytes = 1 + 11 + 3 + 12 + 1 + 13 + 3 + 24 + 1 + 13 + 3 + 5
    assert message[:8] == bytes([0, 0, 0, 12 + n_header_bytes + 2 + 4, 0, 0, 0, n_header_bytes])
    assert message[12:39] == b"\x0b:event-type\x07\x00\x0cPayloadChunk"
    assert message[-6:-4] == b"hi"


@pytest.mark.parametrize("offset", [3, 9, 20, -6, -1])
def test_a_damaged_byte_is_noticed(offset: int) -> None:
    damaged = bytearray(b"".join(event_stream.payload_chunks(b"payload")))
    damaged[offset] ^= 1
    with pytest.raises(ChecksumMismatch):
        _read(bytes(damaged))
