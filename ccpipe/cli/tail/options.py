"""The options of ``tail``."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from cyclopts import Parameter

from ccpipe.cli.console.options import (
    NODES,
    BrokerOptions,
    Count,
    ExitAfter,
    Lenient,
    On,
    Since,
    Until,
    point_in_time,
)
from ccpipe.errors import UsageError

Output = Literal["table", "line", "json", "csv"]
Kind = Literal["metric", "event", "log", "control", "other", "sonar", "dead"]
LINE_KINDS: tuple[Kind, ...] = ("metric", "event", "log", "control", "other")
"""Kinds of messages in line protocol."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Options:
    """Selection and format of messages."""

    cluster: Sequence[str] = ()
    """Clusters: a name selects the subjects of that cluster, a pattern is matched against the
    tag."""

    kind: Sequence[Kind] = ()
    """Kinds of messages; sonar selects Sonar envelopes, dead selects dead letters."""

    node: Annotated[Sequence[str], NODES, Parameter(alias="-N")] = ()
    """Nodes: a node list such as n[1-3,7], or a pattern with * or ?."""

    name: Sequence[str] = ()
    """Metrics, event classes, log components, control classes or types of envelopes."""

    job: Annotated[Sequence[int], Parameter(alias="-j")] = ()
    """Nodes of these jobs, once their start event was seen; stored start events are looked up."""

    user: Annotated[Sequence[str], Parameter(alias="-u")] = ()
    """Starts and stops of these users' jobs, and their nodes while the jobs run; names or
    patterns."""

    subject: Sequence[str] = ()
    """The same as SUBJECTS."""

    since: Since = None
    """Show messages stored since this time first: 14:30, 2025-02-20, 2025-02-20T14:30:00Z, or 10m
    for the last ten minutes."""

    until: Until = None
    """Show only messages stored until this time, and exit."""

    all_: Annotated[bool, Parameter(name="--all")] = False
    """Show all stored messages first."""

    follow: On = True
    """Continue with new messages after the stored ones."""

    count: Count = None
    """Exit after this number of lines."""

    for_: ExitAfter = None

    rate: int | None = None
    """Maximum number of lines per second, 0 for all; the default on a terminal is 200."""

    stats: bool = False
    """Show rates by subject, kind, cluster and name instead of lines."""

    raw: bool = False
    """Show payloads unchanged; with filters, those with a matching line."""

    strict: bool = False
    """Show which rules of the specification each message violates."""

    lenient: Lenient = False

    output: Annotated[Output, Parameter(alias="-o")] = "table"
    """Format of lines; the table rounds numbers, the others do not."""

    where: BrokerOptions = BrokerOptions()

    def check(self) -> None:
        """Raise UsageError for options that exclude each other or are out of range."""
        if self.stats and self.output in ("line", "csv"):
            raise UsageError(f"--stats has the formats table and json, not {self.output}")
        if self.stats and self.raw:
            raise UsageError("--stats and --raw cannot be combined")
        for option, value, minimum in (("--count", self.count, 1), ("--rate", self.rate, 0)):
            if value is not None and value < minimum:
                raise UsageError(f"{option}: must be at least {minimum}, got {value}")
        _ = self.begin, self.end  # an invalid time is an error before anything is connected
        if self.since is not None and self.all_:
            raise UsageError("--since and --all exclude each other")
        for option, is_given in (("--no-follow", not self.follow), ("--until", bool(self.until))):
            if is_given and not self.is_history:
                raise UsageError(f"{option} needs --since or --all")
        if self.output in ("line", "csv") and not self.raw and {"sonar", "dead"} & {*self.kind}:
            raise UsageError(
                f"--kind sonar and dead have the formats table and json, not {self.output}"
            )

    @property
    def is_history(self) -> bool:
        return self.since is not None or self.all_

    @property
    def is_following(self) -> bool:
        return self.follow and self.until is None

    @property
    def begin(self) -> int | None:
        """Where the stored messages begin, in nanoseconds since the epoch; None for all of them."""
        return point_in_time(self.since, "--since") if self.since is not None else None

    @property
    def end(self) -> int | None:
        """Where they end."""
        return point_in_time(self.until, "--until") if self.until is not None else None

    @property
    def kinds(self) -> Sequence[Kind]:
        if self.kind:
            return self.kind
        is_for_lines = self.output in ("line", "csv") and not self.raw
        return list(LINE_KINDS if is_for_lines else get_args(Kind))
