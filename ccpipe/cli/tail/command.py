"""``ccpipe tail``: show stored and new messages on the broker."""

from typing import Annotated

from cyclopts import Parameter

from ccpipe.cli.console.login import Login
from ccpipe.cli.tail.follow import follow as show
from ccpipe.cli.tail.options import Kind, Options, Output

Several = Parameter(negative=())


async def tail(
    *subjects: str,
    cluster: Annotated[list[str] | None, Several] = None,
    kind: Annotated[list[Kind] | None, Several] = None,
    node: Annotated[list[str] | None, Several] = None,
    name: Annotated[list[str] | None, Several] = None,
    job: Annotated[list[int] | None, Several] = None,
    subject: Annotated[list[str] | None, Several] = None,
    last: str | None = None,
    since: str | None = None,
    all_: Annotated[bool, Parameter(name="--all", negative=())] = False,
    follow: Annotated[bool, Parameter(name="--follow")] = True,
    count: int | None = None,
    for_: Annotated[str | None, Parameter(name="--for")] = None,
    limit: int | None = None,
    stats: bool = False,
    raw: bool = False,
    strict: bool = False,
    lenient: bool = False,
    output: Annotated[Output, Parameter(alias="-o")] = "table",
    login: Annotated[Login, Parameter(name="*")] = Login(),  # noqa: B008 - frozen
) -> None:
    """Show messages on the bus.

    Without options, shows all messages of all clusters until Ctrl-C. Filters can
    be repeated; their values are patterns (* ? [abc]). A terminal shows only a
    sample if there are too many messages; a pipe or a file gets all of them.
    Invalid lines, and reasons why nothing arrives, are reported on stderr.

    Examples:
      ccpipe tail --kind event --kind log --last 10m
      ccpipe tail --node 'f[0101-0164]' --name 'cpu_*' --for 30s -o csv > cpu.csv
      ccpipe tail --job 4711 --stats

    Parameters
    ----------
    subjects
        Subjects instead of those of --kind and --cluster, with wildcards * and >.
    cluster
        Clusters: a name selects the subjects of that cluster, a pattern is
        matched against the tag.
    kind
        Kinds of messages; sonar selects Sonar envelopes, dead selects dead letters.
    node
        Nodes: a node list such as n[1-3,7], or a pattern with * or ?.
    name
        Metrics, event classes, log components, control classes or types of
        envelopes.
    job
        Nodes of these jobs, once their start event was seen; stored start events
        are looked up.
    subject
        The same as SUBJECTS.
    last
        Show messages stored within this time first, such as 10m.
    since
        Show messages stored since this time first: 14:30, 2025-02-20 or
        2025-02-20T14:30:00Z.
    all_
        Show all stored messages first.
    follow
        Continue with new messages after the stored ones.
    count
        Exit after this number of lines.
    for_
        Exit after this time, such as 30s.
    limit
        Maximum number of lines per second, 0 for all; the default on a terminal
        is 200.
    stats
        Show rates by subject, kind, cluster and name instead of lines.
    raw
        Show payloads unchanged; with filters, those with a matching line.
    strict
        Show which rules of the specification each message violates.
    lenient
        Accept known deviations from the grammar.
    output
        Format of lines; the table rounds numbers, the others do not.
    """
    await show(
        Options(
            subjects=[*subjects, *(subject or [])],
            cluster=cluster or [],
            kind=kind or [],
            node=node or [],
            name=name or [],
            job=job or [],
            last=last,
            since=since,
            all_=all_,
            follow=follow,
            count=count,
            for_=for_,
            limit=limit,
            stats=stats,
            raw=raw,
            strict=strict,
            lenient=lenient,
            output=output,
            login=login,
        )
    )
