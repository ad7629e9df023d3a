# SPDX-License-Identifier: Apache-2.0
from base64 import b64decode

from quickthaw.snapshot.host.log_tail import LogTail


def test_a_short_log_is_kept_whole() -> None:
    log = LogTail(512)
    log.begin("r-1")
    log.take("one\n")
    log.end("r-1", 1.234, 30, 99.5)
    assert b64decode(log.encoded()).decode() == (
        "START RequestId: r-1 Version: $LATEST\none\nEND RequestId: r-1\n"
        "REPORT RequestId: r-1\tDuration: 1.23 ms\tBilled Duration: 2 ms\tMemory Size: 512 MB\t"
        "Max Memory Used: 30 MB\tInit Duration: 99.50 ms\t\n"
    )


def test_a_long_log_keeps_its_end() -> None:
    log = LogTail(512)
    for n in range(100_000):
        log.take(f"line {n}\n")
    kept = b64decode(log.encoded())
    assert len(kept) == 4096
    assert kept.endswith(b"line 99998\nline 99999\n")
