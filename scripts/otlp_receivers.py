#!/usr/bin/env python3
"""Compile stores that receive OpenTelemetry, which Debian's versions do not, from Go's modules.

::

    python3 scripts/otlp_receivers.py install    # once: 120 MB below $XDG_CACHE_HOME/ccpipe
    python3 scripts/otlp_receivers.py path       # print the directory of the programs

It takes Go, some five minutes of one core, and 4 GB of disk in Go's caches. Without Go it prints
a note and exits with 0, and the tests that need these programs are skipped by name.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple


class Program(NamedTuple):
    """A program of a Go module."""

    module: str
    version: str
    package: str
    """Below the module."""
    tags: str = ""

    def compile(self, name: str, into: Path) -> None:
        """Compile it in a module of our own that requires it; ``go install`` refuses `replace`."""
        with tempfile.TemporaryDirectory(dir=into) as draft:
            text = f"module receiver\n\ngo 1.24\n\nrequire {self.module} {self.version}\n"
            (Path(draft) / "go.mod").write_text(text, encoding="utf-8")
            command = [
                "go", "build", "-p", "2", "-mod=mod", "-buildvcs=false", "-ldflags", "-s -w",
                "-tags", self.tags, "-o", f"{draft}/{name}", f"{self.module}/{self.package}",
            ]  # fmt: skip
            subprocess.run(command, check=True, cwd=draft)  # noqa: S603
            Path(draft, name).rename(into / name)


PROGRAMS = {
    "prometheus-3.16": Program(
        "github.com/prometheus/prometheus", "v0.316.0", "cmd/prometheus", "remove_all_sd"
    ),
    "victoria-metrics-2025": Program(
        "github.com/VictoriaMetrics/VictoriaMetrics",
        "v0.0.0-20250718125606-9d9bea03485e",
        "app/victoria-metrics",
    ),
}


def directory() -> Path:
    """Return where the programs are, or would be."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "ccpipe" / "otlp-receivers"


def find(name: str) -> Path | None:
    """Return the path of a compiled program, or None."""
    path = directory() / name
    return path if path.is_file() else None


def install() -> None:
    """Compile what is missing."""
    missing = [name for name in PROGRAMS if find(name) is None]
    if missing and shutil.which("go") is None:
        print(f"no Go here, which compiles {' and '.join(missing)}", file=sys.stderr)
        return
    directory().mkdir(parents=True, exist_ok=True)
    for name in missing:
        print(f"compiling {name}", file=sys.stderr)
        PROGRAMS[name].compile(name, directory())


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["install"]:
            install()
        case ["path"]:
            print(directory())
        case _:
            sys.exit(f"usage: {sys.argv[0]} install|path")
