# SPDX-License-Identifier: Apache-2.0
"""The end of what a function wrote during one invocation, between the lines that Lambda writes about it.

    START RequestId: … Version: $LATEST
    what the function wrote
    END RequestId: …
    REPORT RequestId: …  Duration: 1.23 ms  Billed Duration: 2 ms  Memory Size: …  Max Memory Used: …

Only the last 4 KB are kept. Lines arrive on the thread that reads the function's output.
"""

from base64 import b64encode
from math import ceil

_LIMIT_BYTES = 4096  # of X-Amz-Log-Result before base64, as Lambda's
_COMPACT_AT = 16 * _LIMIT_BYTES


class LogTail:
    """Collects one invocation's log."""

    def __init__(self, memory_size_mib: int) -> None:
        self._memory_size_mib = memory_size_mib
        self._text = bytearray()

    def begin(self, request_id: str) -> None:
        """The invocation has been sent to the function."""
        self.take(f"START RequestId: {request_id} Version: $LATEST\n")

    def take(self, line: str) -> None:
        """Add a line."""
        self._text += line.encode()
        if len(self._text) > _COMPACT_AT:
            del self._text[:-_LIMIT_BYTES]

    def end(
        self, request_id: str, duration_ms: float, memory_used_mib: int | None, init_ms: float | None
    ) -> None:
        """The function has answered. `init_ms` is that of the start, if this was the first invocation."""
        parts = [
            f"REPORT RequestId: {request_id}",
            f"Duration: {duration_ms:.2f} ms",
            f"Billed Duration: {ceil(duration_ms)} ms",
            f"Memory Size: {self._memory_size_mib} MB",  # which are MiB
        ]
        if memory_used_mib is not None:
            parts.append(f"Max Memory Used: {memory_used_mib} MB")
        if init_ms is not None:
            parts.append(f"Init Duration: {init_ms:.2f} ms")
        self.take(f"END RequestId: {request_id}\n" + "\t".join(parts) + "\t\n")

    def encoded(self) -> str:
        """What X-Amz-Log-Result says."""
        return b64encode(self._text[-_LIMIT_BYTES:]).decode("ascii")
