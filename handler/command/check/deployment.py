# SPDX-License-Identifier: Apache-2.0
"""What is checked, and what there is to find: a function, the template around it, one thing to know of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from typing import NamedTuple

from quickthaw.handler.command.check.template import Function, Template
from quickthaw.handler.config import HandlerConfig
from quickthaw.handler.errors import ConfigurationError
from quickthaw.layers.errors import LayersConfigError
from quickthaw.snapshot.config import prepare

MB = 1_000_000


class Kind(Enum):
    """What a finding means.

    REFUSED: AWS, or the function itself, would refuse it, now or with the first request.
    OPEN: strangers are let in.
    SLOW: it runs, slowly, or not for long enough.
    COST: what it takes each month.
    """

    REFUSED = "refused"
    OPEN = "open"
    SLOW = "slow"
    COST = "cost"


class Finding(NamedTuple):
    """One thing to know before a deployment."""

    kind: Kind
    where: str
    what: str
    why: str
    fix: str = ""


class Deployment(NamedTuple):
    """One function, the template around it, and how large its shard set is, if that is known."""

    function: Function
    template: Template
    shard_bytes: int | None = None

    @property
    def memory_mib(self) -> int:
        """What the function has, and what of a CPU comes with it."""
        return self.function.number("MemorySize", 128)

    @property
    def tmp_mib(self) -> int:
        """How large /tmp is."""
        return int(self.function.properties.get("EphemeralStorage", {}).get("Size", 512))

    @property
    def has_snap_start(self) -> bool:
        """Whether versions are to start from a snapshot."""
        return bool(self.function.properties.get("SnapStart", {}).get("ApplyOn") == "PublishedVersions")

    @property
    def has_efs(self) -> bool:
        """Whether a file system is mounted."""
        return bool(self.function.properties.get("FileSystemConfigs"))

    @property
    def config(self) -> HandlerConfig | None:
        """The function's configuration; None for a bad one, which is a finding of its own."""
        try:
            return self.read_config()
        except (ConfigurationError, LayersConfigError):
            return None

    def read_config(self) -> HandlerConfig:
        """Raises: ConfigurationError, LayersConfigError."""
        environ = self.function.variables
        prepare(environ)  # takes out what the bootstrap alone is told
        return HandlerConfig.from_env(environ)


Told = Iterator[tuple[str, str, str]]  # what, why, fix
Rule = Callable[[Deployment], Told]
