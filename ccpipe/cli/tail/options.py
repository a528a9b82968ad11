"""The options of ``tail``."""

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal, get_args

from cyclopts import Parameter

from ccpipe.cli.console.options import ExitAfter, Lenient, LoginOptions, On, expand_nodes, seconds
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

    node: Sequence[str] = ()
    """Nodes: a node list such as n[1-3,7], or a pattern with * or ?."""

    name: Sequence[str] = ()
    """Metrics, event classes, log components, control classes or types of envelopes."""

    job: Sequence[int] = ()
    """Nodes of these jobs, once their start event was seen; stored start events are looked up."""

    subject: Sequence[str] = ()
    """The same as SUBJECTS."""

    last: str | None = None
    """Show messages stored within this time first, such as 10m."""

    since: str | None = None
    """Show messages stored since this time first: 14:30, 2025-02-20 or 2025-02-20T14:30:00Z."""

    all_: Annotated[bool, Parameter(name="--all")] = False
    """Show all stored messages first."""

    follow: On = True
    """Continue with new messages after the stored ones."""

    count: int | None = None
    """Exit after this number of lines."""

    for_: ExitAfter = None

    limit: int | None = None
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

    login: LoginOptions = LoginOptions()

    def check(self) -> None:
        """Raise UsageError for options that exclude each other or are out of range."""
        if self.stats and self.output in ("line", "csv"):
            raise UsageError(f"--stats has the formats table and json, not {self.output}")
        if self.stats and self.raw:
            raise UsageError("--stats and --raw cannot be combined")
        for option, value, minimum in (("--count", self.count, 1), ("--limit", self.limit, 0)):
            if value is not None and value < minimum:
                raise UsageError(f"{option}: must be at least {minimum}, got {value}")
        _ = self.begin  # an invalid time is an error before anything is connected
        if sum((self.last is not None, self.since is not None, self.all_)) > 1:
            raise UsageError("--last, --since and --all exclude each other")
        if not self.follow and not self.is_history:
            raise UsageError("--no-follow needs --last, --since or --all")
        if self.output in ("line", "csv") and not self.raw and {"sonar", "dead"} & {*self.kind}:
            raise UsageError(
                f"--kind sonar and dead have the formats table and json, not {self.output}"
            )

    @property
    def is_history(self) -> bool:
        return self.last is not None or self.since is not None or self.all_

    @property
    def begin(self) -> int | None:
        """Where the stored messages begin, in nanoseconds since the epoch; None for all of them."""
        if self.last is not None:
            return int((time.time() - (seconds(self.last, "--last") or 0.0)) * 1e9)
        return int(point_in_time(self.since) * 1e9) if self.since is not None else None

    @property
    def kinds(self) -> Sequence[Kind]:
        if self.kind:
            return self.kind
        is_for_lines = self.output in ("line", "csv") and not self.raw
        return list(LINE_KINDS if is_for_lines else get_args(Kind))

    def nodes(self) -> list[str]:
        if not self.node:
            return []
        found: list[str] = []
        for text in self.node:
            if re.search(r"[*?]|\[[^]0-9]", text):
                found.append(text)
                continue
            found += expand_nodes(text)
        return found


def point_in_time(text: str) -> float:
    """Parse a time of day, a date or both, by default in local time; returns seconds."""
    today = datetime.now().astimezone().date().isoformat()
    for form in (text, f"{today} {text}"):
        try:
            return datetime.fromisoformat(form).timestamp()
        except (ValueError, OverflowError):
            continue
    raise UsageError(
        f"--since: not a time: {text!r} (expected e.g. 14:30, 2025-02-20, 2025-02-20T14:30:00Z)"
    )
