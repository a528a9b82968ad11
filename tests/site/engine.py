"""podman and buildah with storage, networks and processes of their own, which end with a block."""

import json
import os
import subprocess
import sysconfig
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import psutil

from tests.conftest import program

ENTER = """
mount -t tmpfs tmpfs /run
ip link set lo up
echo 1 > /proc/sys/net/ipv4/ip_forward
echo ready
exec catatonit -P
"""
STORAGE = """
[storage]
driver = "overlay"
graphroot = "{directory}/storage"
runroot = "{directory}/run"
"""
# The limits of podman's default are higher than root may set in a container, as in CI.
CONFIGURATION = """
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "runc"
tmp_dir = "{directory}/tmp"
[network]
network_config_dir = "{directory}/networks"
"""
SLIM = (
    "--aptopt=Acquire::Languages none",
    *(f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("doc", "info", "locale", "man")),
)
"""What debian:trixie-slim leaves out of trixie."""


class Engine:
    """Containers, their mounts and their networks are in namespaces that end with the block."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        for name in ("networks", "temporary", "tmp"):
            (directory / name).mkdir(parents=True)
        storage, configuration = directory / "storage.conf", directory / "containers.conf"
        storage.write_text(STORAGE.format(directory=directory))
        configuration.write_text(CONFIGURATION.format(directory=directory))
        scripts = sysconfig.get_path("scripts")
        self.environ = {
            **os.environ,
            "BUILDAH_ISOLATION": "chroot",
            "CONTAINERS_CONF": str(configuration),
            "CONTAINERS_STORAGE_CONF": str(storage),
            "PATH": f"{scripts}:{os.environ['PATH']}:/usr/sbin:/sbin",
            "TMPDIR": str(directory / "temporary"),
        }

    def __enter__(self) -> Self:
        for name in ("podman", "buildah", "runc", "catatonit"):
            program(name, name)
        own = ("--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc")
        self.namespaces = subprocess.Popen(
            ["unshare", *own, "sh", "-e", "-c", ENTER],
            env=self.environ, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.namespaces.stdout is not None
        assert self.namespaces.stdout.readline() == "ready\n"
        [first] = psutil.Process(self.namespaces.pid).children()
        self.pid = first.pid
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.run("podman", "rm", "--all", "--force", "--time=1")
        finally:
            self.namespaces.kill()
            self.namespaces.communicate()
            for name in ("libpod_parent/conmon", "libpod_parent"):
                for group in Path("/sys/fs/cgroup").glob(f"*/{name}"):
                    with suppress(OSError):  # another podman of this machine uses it
                        group.rmdir()

    def run(
        self,
        *words: object,
        at: Path = Path("/"),
        timeout: float = 300,
        is_online: bool = False,
        fails: bool = False,
    ) -> str:
        """Run a command in the namespaces; return its stdout, or its stderr where it must fail.

        Only with `is_online` it has the network of this machine, and not that of the containers.
        """
        enter = ["nsenter", f"--target={self.pid}", "--mount", "--pid", f"--wdns={at}"]
        done = subprocess.run(
            [*enter, *([] if is_online else ["--net"]), "--", *map(str, words)],
            env=self.environ, capture_output=True, text=True, timeout=timeout, check=False,
        )  # fmt: skip
        assert (done.returncode != 0) == fails, (
            f"{words}: {done.stdout[-2000:]}{done.stderr[-5000:]}"
        )
        return done.stderr if fails else done.stdout

    def json(self, *words: object) -> Any:
        return json.loads(self.run(*words))

    def import_debian(self) -> None:
        """Make the image debian:trixie-slim from the packages of which the real one consists."""
        file = self.directory / "debian.tar"
        bootstrap = program("mmdebstrap", "mmdebstrap")
        self.run(
            bootstrap, "--variant=minbase", *SLIM, "trixie", file, is_online=True, timeout=1200
        )
        self.run("podman", "import", file, "docker.io/library/debian:trixie-slim")
        file.unlink()

    def build_options(self) -> list[str]:
        """Return what builds need to reach the package index as this machine does."""
        options = ["--pull-never", "--layers"]
        if certificates := os.environ.get("PIP_CERT"):
            file = self.directory / "pip.conf"
            file.write_text("[global]\ncert = /etc/certificates.pem\n")
            options.append(f"--volume={certificates}:/etc/certificates.pem:ro")
            options.append(f"--volume={file}:/etc/pip.conf:ro")
        return options
