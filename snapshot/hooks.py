# SPDX-License-Identifier: Apache-2.0
"""What a process that was restored must not share with its siblings, made anew. Importing this is enough.

    import quickthaw.snapshot.hooks                  # above what registers hooks of its own

    from quickthaw.snapshot.hooks import register_after_restore, register_before_snapshot

    @register_before_snapshot                        # the last one registered runs first
    def close(): ...

    @register_after_restore                          # the first one registered runs first
    def connect(): ...

The decorators are AWS's own (snapshot_restore_py), so that the hooks run under SnapStart, whatever the
runtime, and in our engines. `renew` is one of them, and does for modules that are imported:

    random, numpy.random, torch   their global generators get new seeds; your own ones you seed yourself
    tempfile, uuid                new names, and no clock sequence that a sibling counts on with
    ssl                           fresh randomness is stirred in
    time                          the time zone is read from the environment again
    boto3                         the default session goes, with its credentials; your clients you make anew

Under our bootstrap it is imported before any function that is to be captured.
"""

import os
import sys
from typing import Any

from snapshot_restore_py import (  # type: ignore[import-untyped]
    register_after_restore,
    register_before_snapshot,
)

__all__ = ["register_after_restore", "register_before_snapshot", "renew"]


def renew() -> None:
    """Make anew what clones must not share, of the modules that are imported."""
    for name, renew_module in _RENEWED.items():
        module = sys.modules.get(name)
        if module is not None:
            renew_module(module)


def _renew_tempfile(tempfile: Any) -> None:
    tempfile._name_sequence = None  # it is made again with the next name


def _renew_uuid(uuid: Any) -> None:
    # libuuid counts on from where it was captured. Without it each uuid1 draws its clock sequence, and with a
    # node of its own (RFC 9562, section 6.10) a clone is another machine.
    uuid._generate_time_safe = uuid._last_timestamp = None
    uuid._node = int.from_bytes(os.urandom(6)) | 1 << 40


def _renew_boto3(boto3: Any) -> None:
    boto3.DEFAULT_SESSION = None


_RENEWED = {
    "random": lambda random: random.seed(),
    "numpy.random": lambda random: random.seed(),
    "torch": lambda torch: torch.seed(),
    "tempfile": _renew_tempfile,
    "uuid": _renew_uuid,
    "ssl": lambda ssl: ssl.RAND_add(os.urandom(32), 32.0),
    "time": lambda time: time.tzset(),
    "boto3": _renew_boto3,
}

register_after_restore(renew)
