# SPDX-License-Identifier: Apache-2.0
"""Lines of the text that Prometheus reads, of the host's metrics and of our function's.

    # HELP quickthaw_first_token_seconds From event to first token.
    # TYPE quickthaw_first_token_seconds histogram
    quickthaw_first_token_seconds_bucket{start="cold",le="0.1"} 1
    …

Labels are written `name="value",…`, or empty.
Source: https://prometheus.io/docs/instrumenting/exposition_formats/ (text-based format).
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def head(name: str, kind: str, help_text: str) -> Iterator[str]:
    """What comes before a metric's values."""
    yield f"# HELP {name} {help_text}"
    yield f"# TYPE {name} {kind}"


def value(name: str, labels: str, number: object) -> str:
    """One value."""
    return f"{name}{_braced(labels)} {number}"


def histogram(
    name: str, labels: str, limits: Iterable[object], counts: Sequence[int], total: object
) -> Iterator[str]:
    """A histogram; `counts` are those up to each limit and above the one before, the last above them all."""
    sums = list(accumulate(counts))  # each bucket counts those below it too
    for limit, count in zip([*limits, "+Inf"], sums, strict=True):
        le = f'le="{limit}"'
        yield value(f"{name}_bucket", f"{labels},{le}" if labels else le, count)
    yield value(f"{name}_sum", labels, total)
    yield value(f"{name}_count", labels, sums[-1])


def _braced(labels: str) -> str:
    return f"{{{labels}}}" if labels else ""
