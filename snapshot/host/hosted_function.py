# SPDX-License-Identifier: Apache-2.0
"""What a function is called, and what Lambda would tell it about itself."""

import os
import platform
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from uuid import uuid4

VERSION = "$LATEST"
_ACCOUNT = "000000000000"
REGION = "us-east-1"
_MIB = 1024 * 1024
_NAMED = re.compile(
    r"(?:(?:arn:aws[^:]*:lambda:[^:]+:)?\d{12}:function:)?(?P<name>[^:]+)(?::(?P<version>[^:]+))?"
)


@dataclass(frozen=True, slots=True)
class HostedFunction:
    """A function as clients and its own processes know it. AWS's emulator calls every one `function`.

    Units: `memory_mib` is the limit; None for none.
    """

    handler: str
    name: str = "function"
    region: str = REGION
    task_root: str | None = None
    memory_mib: int | None = None

    @property
    def arn(self) -> str:
        """Its ARN, without a version."""
        return f"arn:aws:lambda:{self.region}:{_ACCOUNT}:function:{self.name}"

    @property
    def memory_size_mib(self) -> int:
        """The memory it is told it has: the limit, or without one the machine's."""
        return self.memory_mib or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // _MIB

    def is_named(self, name: str) -> bool:
        """Whether a client means this function: by name, ARN or part of it, with or without a version."""
        named = _NAMED.fullmatch(name)
        return named is not None and named["name"] == self.name and named["version"] in (None, VERSION)

    def environment(self, base: Mapping[str, str], start: str) -> dict[str, str]:
        """The whole environment of one more process; `start` names the engine.

        What the person who hosts it has set about region and time stays.
        """
        log_stream = f"{time.strftime('%Y/%m/%d')}/[{VERSION}]{uuid4().hex}"
        return {
            "TZ": ":UTC",
            "AWS_REGION": self.region,
            "AWS_DEFAULT_REGION": self.region,
            **base,
            "AWS_EXECUTION_ENV": f"AWS_Lambda_python{'.'.join(platform.python_version_tuple()[:2])}",
            "AWS_LAMBDA_FUNCTION_NAME": self.name,
            "AWS_LAMBDA_FUNCTION_VERSION": VERSION,
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(self.memory_size_mib),
            "AWS_LAMBDA_LOG_GROUP_NAME": f"/aws/lambda/{self.name}",
            "AWS_LAMBDA_LOG_STREAM_NAME": log_stream,
            "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand" if start == "cold" else "snap-start",
            "LAMBDA_TASK_ROOT": self.task_root or os.getcwd(),
            "_HANDLER": self.handler,
        }
