"""``ccpipe nodelist``: expand, compress and count node lists such as ``c[1-3]``."""

import sys
from collections.abc import Iterator
from typing import Annotated

from cyclopts import App, Parameter

from ccpipe.cli.console.options import refuse_options
from ccpipe.errors import DataError, UsageError
from ccpipe.formats import nodelist as lists

nodelist = App(
    name="nodelist",
    help="""Expand, compress and count node lists.

The syntax is that of Slurm and Sonar: c[1-3,5]-[2-4].fox,login-1.

Examples: ccpipe nodelist expand 'n[08-10],login-[1-2]'
          sinfo -hN -o %N | ccpipe nodelist compress
          ccpipe nodelist count "$SLURM_JOB_NODELIST\"""",
)

Names = Annotated[
    str,
    Parameter(
        name="NAMES",
        allow_leading_hyphen=True,
        help="Node lists; none or - for standard input.",
    ),
]
Max = Annotated[int, Parameter(name="--max", help="Maximum number of names.")]


@nodelist.command
def expand(*names: Names, max_: Max = lists.LIMIT) -> None:
    """Print each node's name on a line.

    Examples:
      ccpipe nodelist expand 'n[08-10],login-[1-2]'
      ccpipe nodelist expand "$SLURM_JOB_NODELIST" | xargs -I{} ssh {} uptime
      squeue -h -o %N | ccpipe nodelist expand - | sort | uniq -c
    """
    sys.stdout.writelines(f"{name}\n" for name in _expanded(names, max_))


@nodelist.command
def compress(*names: Names, max_: Max = lists.LIMIT) -> None:
    """Print names and lists as one list that contains each node once.

    Examples:
      ccpipe nodelist compress c1 c2 'c[3-4]'
      sinfo -hN -o %N | ccpipe nodelist compress
      sort -u drained.txt | ccpipe nodelist compress
    """
    print(",".join(lists.compress(_expanded(names, max_))))


@nodelist.command
def count(*names: Names) -> None:
    """Print the number of nodes.

    Examples:
      ccpipe nodelist count 'n[001-640]'
      ccpipe nodelist count "$SLURM_JOB_NODELIST"
      squeue -h -o %N | ccpipe nodelist count
    """
    print(sum(map(lists.count, _texts(names))))


def _expanded(names: tuple[str, ...], limit: int) -> Iterator[str]:
    texts = list(_texts(names))
    total = sum(map(lists.count, texts))
    if total > limit:
        raise UsageError(f"{total} names exceed --max {limit}")
    return (name for text in texts for name in lists.expand(text, limit=limit))


def _texts(names: tuple[str, ...]) -> Iterator[str]:
    refuse_options(names)
    for name in names or ("-",):
        if name != "-":
            yield name
            continue
        for line in sys.stdin.buffer:
            try:
                yield from line.decode().split()
            except UnicodeDecodeError:
                raise DataError(f"standard input: {line!r:.60} is not valid UTF-8") from None
