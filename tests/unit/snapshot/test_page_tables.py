# SPDX-License-Identifier: Apache-2.0
import mmap
import subprocess
import sys
from pathlib import Path

import pytest

from quickthaw.snapshot import page_tables

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc/PID/pagemap")

N_PAGES = 2048


# A process of its own, for this one may have threads.
FORKED = """
import mmap, os, sys
from pathlib import Path
from quickthaw.snapshot import page_tables

def resident_pages():
    status = Path("/proc/self/status").read_text()
    return int(status.partition("RssFile:")[2].split()[0]) * 1024 // mmap.PAGESIZE

with open(sys.argv[1], "rb") as file:
    mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
assert sum(mapped[::mmap.PAGESIZE]) == 0
spans = page_tables.of_files()
if os.fork() == 0:
    before = resident_pages()
    page_tables.fill(spans, lambda: sys.argv[2] == "enough")
    print(resident_pages() - before)
else:
    os.wait()
"""


def test_a_span_holds_what_was_touched(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(N_PAGES * mmap.PAGESIZE))
    before = sum(span.n_pages for span in page_tables.of_files())
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        untouched = sum(span.n_pages for span in page_tables.of_files())
        assert sum(mapped[:: mmap.PAGESIZE]) == 0
        touched = sum(span.n_pages for span in page_tables.of_files())
    assert untouched - before < N_PAGES / 2
    assert touched - untouched > N_PAGES / 2


@pytest.mark.parametrize(("wanted", "has_all"), [("all", True), ("enough", False)])
def test_a_fork_gets_them(tmp_path: Path, wanted: str, has_all: bool) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(N_PAGES * mmap.PAGESIZE))
    command = [sys.executable, "-c", FORKED, str(path), wanted]
    n_new = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert (n_new >= N_PAGES) == has_all


def test_what_is_mapped_no_more_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(N_PAGES * mmap.PAGESIZE))
    before = set(page_tables.of_files())
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert sum(mapped[:: mmap.PAGESIZE]) == 0
        spans = [span for span in page_tables.of_files() if span not in before]
    page_tables.fill(spans, lambda: False)
