"""``ccpipe tail``: show stored and new messages on the broker."""

import dataclasses
from typing import Annotated

from cyclopts import Parameter

from ccpipe.cli.tail.options import Options

SUBJECTS = "Subjects that replace --kind and --cluster, with wildcards * and >."
Subject = Annotated[str, Parameter(help=SUBJECTS)]


async def tail(*subjects: Subject, options: Options = Options()) -> None:
    """Show messages on the bus.

    Without options, shows all messages of all clusters until Ctrl-C. Filters can
    be repeated; their values are patterns (* ? [abc]). A terminal shows only a
    sample if there are too many messages; a pipe or a file gets all of them.
    Invalid lines, and reasons why nothing arrives, are reported on stderr.

    Examples:
      ccpipe tail --kind event --kind log --since 10m
      ccpipe tail --node 'f[0101-0164]' --name 'cpu_*' --for 30s -o csv > cpu.csv
      ccpipe tail --job 4711 --stats
    """
    from ccpipe.cli.tail.follow import follow  # with the broker's client: not for --help

    await follow(dataclasses.replace(options, subject=[*subjects, *options.subject]))
