#!/usr/bin/env python3
"""Compile a MinIO, an S3-compatible server, for the tests that kill the server.

::

    python3 scripts/minio_server.py install     # once: 110 MB below $XDG_CACHE_HOME/ccpipe
    python3 scripts/minio_server.py path        # print the path of the program

It needs Go, some five minutes of two cores, and 2 GB of disk in Go's caches. Without Go it prints a
note and exits with 0, and the tests that need the server are skipped by name with the reason (with
CCPIPE_TESTS_STRICT=1 they fail instead).
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

VERSION = "v0.0.0-20260212201848-7aac2a2c5b7c"


def program() -> Path:
    """Return where the program is, or would be."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "ccpipe" / f"minio-{VERSION.rpartition('-')[2]}" / "minio"


def is_installed() -> bool:
    return program().is_file()


def install() -> None:
    """Compile the program, if it is not there."""
    if is_installed():
        return
    if shutil.which("go") is None:
        print("no Go here, which compiles MinIO; its tests are skipped", file=sys.stderr)
        return
    program().parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=program().parent) as draft:
        done = subprocess.run(  # noqa: S603
            ["go", "install", "-p", "2", "-ldflags", "-s -w", f"github.com/minio/minio@{VERSION}"],  # noqa: S607
            check=False, cwd="/", env={**os.environ, "CGO_ENABLED": "0", "GOBIN": draft},
        )  # fmt: skip
        if done.returncode:
            print("Go could not compile MinIO; its tests are skipped", file=sys.stderr)
        else:
            (Path(draft) / "minio").rename(program())


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["install"]:
            install()
        case ["path"]:
            print(program())
        case _:
            sys.exit(f"usage: {sys.argv[0]} install|path")
