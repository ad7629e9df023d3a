# SPDX-License-Identifier: Apache-2.0
"""AWS's own tools, as `make tools` installs them, and containers for them to start."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.aws.containers import ContainerEngine, container_engine, missing_part
from tests.aws.sam import RUNTIME, Sam, find_runtime_python

ROOT = Path(__file__).parents[2]
TOOLS = Path(os.environ.get("TOOLS", ROOT / ".tools"))


@pytest.fixture(scope="session")
def sam(tmp_path_factory: pytest.TempPathFactory) -> Sam:
    """The SAM CLI."""
    program = TOOLS / "sam" / "bin" / "sam"
    if not program.exists():
        pytest.skip("the SAM CLI is not installed: make tools")
    return Sam(program, tmp_path_factory.mktemp("sam"))


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ContainerEngine]:
    """Podman, with the stand-in for AWS's base image."""
    missing = missing_part()
    if missing is not None:
        pytest.skip(missing)
    python = find_runtime_python()
    if python is None:
        pytest.skip(f"{RUNTIME} is not installed, of which the base image would be made")
    with container_engine(tmp_path_factory.mktemp("containers")) as engine:
        engine.import_base_image(python, RUNTIME.removeprefix("python"))
        yield engine


@pytest.fixture(scope="session")
def built(sam: Sam, smollm2_bf16_shards: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The template as `sam build` leaves it, with SmolLM2 in the function's zip."""
    out = tmp_path_factory.mktemp("build")
    sam.run("build", "--build-dir", out, environ={"SHARDS": str(smollm2_bf16_shards)})
    return out / "template.yaml"
