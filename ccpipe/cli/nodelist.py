"""``ccpipe nodelist``: expand, compress and count node lists such as ``c[1-3]``."""

import sys
from collections.abc import Iterator
from typing import Annotated, Literal

from cyclopts import Parameter

from ccpipe.errors import DataError, UsageError
from ccpipe.formats import nodelist as lists


def nodelist(
    action: Literal["expand", "compress", "count"],
    *names: Annotated[str, Parameter(allow_leading_hyphen=True)],
    limit: int = lists.LIMIT,
) -> None:
    """Expand, compress and count node lists.

    Uses the syntax of Slurm and Sonar: c[1-3,5]-[2-4].fox,login-1. expand
    prints one name per line; compress takes names or lists and prints one list
    that contains each node once; count prints the number of nodes.

    Examples:
      ccpipe nodelist expand 'n[08-10],login-[1-2]'
      sinfo -hN -o %N | ccpipe nodelist compress
      ccpipe nodelist count "$SLURM_JOB_NODELIST"

    Parameters
    ----------
    action
        What to do.
    names
        Node lists; none or - for standard input.
    limit
        Maximum number of names, for expand and compress.
    """
    given = [text for name in names or ("-",) for text in _texts(name)]
    if action == "count":
        print(sum(map(lists.count, given)))
        return
    total = sum(map(lists.count, given))
    if total > limit:
        raise UsageError(f"{total} names exceed --limit {limit}")
    expanded = (name for text in given for name in lists.expand(text, limit=limit))
    if action == "expand":
        sys.stdout.writelines(f"{name}\n" for name in expanded)
    else:
        print(",".join(lists.compress(expanded)))


def _texts(name: str) -> Iterator[str]:
    if name != "-":
        yield name
        return
    for line in sys.stdin.buffer:
        try:
            yield from line.decode().split()
        except UnicodeDecodeError:
            raise DataError(f"standard input: {line!r:.60} is not valid UTF-8") from None
