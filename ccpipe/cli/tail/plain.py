"""Simple command lines of ``tail`` without cyclopts.

Most of the time to the first line is imports: common command lines are parsed here. Anything else,
mistakes and ``--help`` above all, is left to the command itself.
"""

import asyncio
from collections.abc import Sequence

from ccpipe.cli.console.login import Login
from ccpipe.cli.console.plain import read
from ccpipe.cli.tail.options import Options


def parse(words: Sequence[str]) -> Options | None:
    """Return the options of a simple command line; None for any other."""
    found = read("tail", words)
    if found is None:
        return None
    for name in ("all", "for"):  # which mean something else in Python
        if name in found:
            found[f"{name}_"] = found.pop(name)
    keys = {name: name.replace("-", "_") for name in found}
    login = {key: found.pop(name) for name, key in keys.items() if key in Login.__annotations__}
    subjects = [*found.pop("subjects", []), *found.pop("subject", [])]
    return Options(**found, subjects=subjects, login=Login(**login))


def run(words: Sequence[str]) -> bool:
    """Run ``tail`` if its arguments are simple; return whether they were."""
    options = parse(words)
    if options is None:
        return False
    from ccpipe.cli.tail.follow import follow

    asyncio.run(follow(options))
    return True
