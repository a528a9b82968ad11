"""A small system of a Debian release to install into: each starts from the same cached copy.

Commands run in namespaces of their own, with their mounts: when a command has ended, nothing of it
runs or is mounted.
"""

import os
import shlex
import subprocess
from pathlib import Path

from scripts.interpreter import mirror
from tests.conftest import program

ENTER = """
set -e
mount -t overlay overlay -o "lowerdir=$BASE,upperdir=$CHANGES,workdir=$WORK" "$ROOT"
mount -t proc proc "$ROOT/proc"
mount -t tmpfs tmpfs "$ROOT/tmp"
mount --rbind /dev "$ROOT/dev"
mkdir -p "$ROOT/packages"
mount --bind "$PACKAGES" "$ROOT/packages"
ip link set lo up
"""


def debootstrap(release: str, cache: Path) -> Path:
    """Return the directory of a minimal system, without Python; it is made once."""
    base = cache / release
    if not base.exists():
        new = cache / f"{release}.new"
        command = [str(program("debootstrap", "debootstrap")), "--variant=minbase", release]
        subprocess.run(
            [*command, str(new), mirror()], check=True, capture_output=True, timeout=1200
        )
        new.rename(base)
    return base


class Chroot:
    """A changed copy of a base system, in which commands run as root."""

    def __init__(self, base: Path, directory: Path, packages: Path) -> None:
        """Keep the changes in a directory; the packages are at ``/packages``."""
        self.changes, work, root = (directory / name for name in ("changes", "work", "root"))
        for path in (self.changes, work, root):
            path.mkdir(parents=True)
        self.directories = {
            "BASE": base, "CHANGES": self.changes, "WORK": work, "ROOT": root, "PACKAGES": packages,
        }  # fmt: skip

    def run(self, script: str, *, timeout: float = 300) -> str:
        """Run a shell script inside and return its output; fail with it unless it succeeds."""
        return self.outside(f'exec chroot "$ROOT" /bin/sh -c {shlex.quote(script)}', timeout)

    def outside(self, script: str, timeout: float = 300) -> str:
        """Run a shell script on this machine that sees the system at ``$ROOT``."""
        own = ("--mount", "--net", "--uts", "--ipc", "--pid", "--fork", "--kill-child")
        environ = {"PATH": os.environ["PATH"] + ":/usr/sbin:/sbin", "LC_ALL": "C.UTF-8"}
        done = subprocess.run(
            ["unshare", *own, "sh", "-c", ENTER + script],
            env={**environ, **{name: str(path) for name, path in self.directories.items()}},
            capture_output=True, text=True, timeout=timeout, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def exists(self, path: str) -> bool:
        """Tell whether a file exists inside."""
        found = self.run(f"if [ -e {shlex.quote(path)} ]; then echo yes; fi")
        return found == "yes\n"
