# SPDX-License-Identifier: Apache-2.0
"""Files at once, and no new one after the first error."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TypeVar

_AT_ONCE = 8
Item = TypeVar("Item")
Result = TypeVar("Result")


def for_each(work: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """The results, in order. Returns, or raises the first error, when nothing is at work any more."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        futures = [pool.submit(work, item) for item in items]
        try:
            for future in as_completed(futures):
                future.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
        return [future.result() for future in futures]
