"""``ccpipe version``: what runs here, in the words of a bug report."""

import platform
import re
import sys
from importlib import metadata
from typing import Annotated

from cyclopts import Parameter

from ccpipe import __version__
from ccpipe.cli.output import TableOrJson, print_json, print_table


def version(*, output: Annotated[TableOrJson, Parameter(alias="-o")] = "table") -> None:
    """Show the versions that matter.

    ccpipe itself, the kernel that decodes line protocol, Python, and the
    libraries that ccpipe uses; for one that is not installed, the line to type.

    Examples: ccpipe version
              ccpipe version -o json
              ccpipe version -o json | jq -r .kernel

    Parameters
    ----------
    output
        How to show it.
    """
    facts = {
        "ccpipe": __version__,
        "kernel": kernel(),
        "python": f"{platform.python_version()} ({sys.executable})",
        "system": platform.platform(),
    }
    libraries = [(name, extra, installed(name)) for name, extra in requirements()]
    if output == "json":
        print_json({**facts, "libraries": {name: version for name, _, version in libraries}})
        return
    rows = list(facts.items())
    for name, extra, version in libraries:
        hint = f"ccpipe[{extra}]" if extra else name
        rows.append((name, version or f"not installed, pip install '{hint}'"))
    print_table(rows, ("what", "version"))


def kernel() -> str:
    """Name the code that decodes line protocol here: compiled or Python."""
    from ccpipe.formats import lineprotocol

    name = getattr(lineprotocol, "kernel_name", None)
    return str(name()) if name else "python"


def requirements() -> list[tuple[str, str]]:
    """List the libraries that ccpipe names, each with the extra that brings it or ''."""
    found: dict[str, str] = {}
    for line in metadata.requires("ccpipe") or []:
        name = re.match(r"[\w.-]+", line)
        extra = re.search(r"""extra == ["']([\w-]+)["']""", line)
        duty = extra[1] if extra else ""
        if name and name[0] != "ccpipe" and duty != "test":
            found.setdefault(name[0], duty)
    return list(found.items())


def installed(library: str) -> str | None:
    """Return the version of an installed library."""
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return None
