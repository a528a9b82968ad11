"""``ccpipe version``: versions of ccpipe, Python and libraries, for bug reports."""

import platform
import re
import sys
from importlib import metadata

from ccpipe import __version__
from ccpipe.cli.console.output import Output, print_json, print_table
from ccpipe.formats.kernel import kernels

DEVELOPMENT = ("docs", "fuzz", "release", "test")
"""Extras needed only for development."""


def version(*, output: Output = "table") -> None:
    """Show the versions of ccpipe, Python and libraries.

    Shows also whether the compiled kernels are in use, and the command to install
    each missing library.

    Examples: ccpipe version
              ccpipe version -o json
              ccpipe version -o json | jq -r .kernel
    """
    facts = {
        "ccpipe": __version__,
        "kernel": kernel(),
        "python": f"{platform.python_version()} ({sys.executable})",
        "system": platform.platform(),
    }
    libraries = [(name, extra, installed(name)) for name, extra in requirements()]
    if output == "json":
        print_json({**facts, "libraries": {name: found for name, _, found in libraries}})
        return
    rows = list(facts.items())
    for name, extra, found in libraries:
        hint = f"ccpipe[{extra}]" if extra else name
        rows.append((name, found or f"not installed, pip install '{hint}'"))
    print_table(rows, ("WHAT", "VERSION"))


def kernel() -> str:
    found = kernels()
    same = set(found.values())
    return same.pop() if len(same) == 1 else ", ".join(map(" ".join, found.items()))


def requirements() -> list[tuple[str, str]]:
    found: dict[str, str] = {}
    for line in metadata.requires("ccpipe") or []:
        name = re.match(r"[\w.-]+", line)
        extra = re.search(r"""extra == ["']([\w-]+)["']""", line)
        duty = extra[1] if extra else ""
        if name and name[0] != "ccpipe" and duty not in DEVELOPMENT:
            found.setdefault(name[0], duty)
    return list(found.items())


def installed(library: str) -> str | None:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return None
