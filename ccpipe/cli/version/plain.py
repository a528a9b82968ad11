"""Plain command lines of ``version`` without the library that parses the others."""

from collections.abc import Sequence

from ccpipe.cli.console.plain import read
from ccpipe.cli.version.versions import show


def run(words: Sequence[str]) -> bool:
    """Run ``version`` if the words after it are plain; return whether they were."""
    found = read("version", words)
    if found is None:
        return False
    show(**found)
    return True
