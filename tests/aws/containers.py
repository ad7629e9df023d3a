# SPDX-License-Identifier: Apache-2.0
"""A container engine of the tests' own: podman behind a socket as Docker's, its images in a folder."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.contract.fronts import TIMEOUT_S, wait_until

BASE_IMAGE = "public.ecr.aws/lambda/python"
_SCRIPT = Path(__file__).with_name("base_image.sh")
# Limits are written down, soft equal to hard, since setting others may be forbidden.
_CONTAINERS_CONF = """
[containers]
default_ulimits = ["nofile=8192:8192", "nproc=8192:8192"]
log_driver = "k8s-file"
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "crun"
"""
_STORAGE_CONF = """
[storage]
driver = "overlay"
graphroot = "{work}/store"
runroot = "{work}/run"
"""
# crun takes version 1 control groups with an empty version 2 beside them for version 2: then that is hidden.
_SERVICE = """
if mountpoint -q /sys/fs/cgroup/unified; then umount /sys/fs/cgroup/unified; fi
exec podman system service --time 0 unix://{socket}
"""
_IMAGE_SETTINGS = (
    "ENV LANG=en_US.UTF-8",
    "ENV PATH=/var/lang/bin:/usr/local/bin:/usr/bin:/bin:/opt/bin",
    "ENV LD_LIBRARY_PATH=/var/lang/lib:/lib64:/usr/lib64:/var/runtime:/var/task:/opt/lib",
    "ENV PIP_CERT=/etc/ssl/certs/ca-certificates.crt",
    "ENV LAMBDA_TASK_ROOT=/var/task",
    "ENV LAMBDA_RUNTIME_DIR=/var/runtime",
    "WORKDIR /var/task",
)


def missing_part() -> str | None:
    """What keeps a container engine from being started here; None where nothing does."""
    if sys.platform != "linux" or os.getuid() != 0:
        return "containers of the tests' own need Linux and root"
    for program in ("podman", "crun", "busybox", "unshare"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    return None


class ContainerEngine:
    """A running podman; its images and containers lie under `work`."""

    def __init__(self, work: Path) -> None:
        self._work = work
        self.socket = work / "podman.sock"
        self.environ = {
            **os.environ,
            "CONTAINERS_CONF": str(work / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(work / "storage.conf"),
            "DOCKER_HOST": f"unix://{self.socket}",
        }

    def podman(self, *arguments: str | Path) -> str:
        """Run a command on this engine; what it printed."""
        command = ["podman", "--url", f"unix://{self.socket}", *map(str, arguments)]
        done = subprocess.run(command, env=self.environ, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    def import_base_image(self, python: Path, version: str) -> None:
        """The stand-in for AWS's image of a Python version, under the name that SAM asks for."""
        root, archive = self._work / "base", self._work / "base.tar"
        subprocess.run([_SCRIPT, python, root], check=True, capture_output=True)
        subprocess.run(["tar", "-C", root, "-cf", archive, "."], check=True)
        changes = [part for setting in _IMAGE_SETTINGS for part in ("--change", setting)]
        self.podman("import", *changes, archive, f"{BASE_IMAGE}:{version}-x86_64")
        archive.unlink()
        shutil.rmtree(root)


@contextmanager
def container_engine(work: Path) -> Iterator[ContainerEngine]:
    """Runs until the end of the block, and takes its containers with it."""
    (work / "containers.conf").write_text(_CONTAINERS_CONF)
    (work / "storage.conf").write_text(_STORAGE_CONF.format(work=work))
    engine = ContainerEngine(work)
    with (work / "podman.log").open("wb") as log:
        # In a mount namespace of its own, for what is hidden from it.
        service = subprocess.Popen(
            ["unshare", "-m", "--propagation", "private", "sh", "-c", _SERVICE.format(socket=engine.socket)],
            cwd=work,
            env=engine.environ,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        wait_until(engine.socket.exists)
        yield engine
        engine.podman("rm", "--all", "--force", "--time", "0")
    finally:
        service.send_signal(signal.SIGTERM)
        service.wait(TIMEOUT_S)
        # What is mounted there would outlive the test.
        for line in Path("/proc/self/mounts").read_text().splitlines():
            if (place := line.split()[1]).startswith(str(work)):
                subprocess.run(["umount", "-l", place], check=False)
