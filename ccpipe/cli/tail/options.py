"""The options of ``tail``, independent of the command-line parser."""

import re
import time
from datetime import datetime
from typing import Literal, get_args

import msgspec

from ccpipe.cli.console.arguments import seconds
from ccpipe.cli.console.login import Login
from ccpipe.errors import DataError, UsageError

Output = Literal["table", "line", "json", "csv"]
Kind = Literal["metric", "event", "log", "control", "other", "sonar", "dead"]
LINE_KINDS: tuple[Kind, ...] = ("metric", "event", "log", "control", "other")
"""Kinds of messages in line protocol."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What to show, and how."""

    subjects: list[str] = []
    cluster: list[str] = []
    kind: list[Kind] = []
    node: list[str] = []
    name: list[str] = []
    job: list[int] = []
    last: str | None = None
    since: str | None = None
    all_: bool = False
    follow: bool = True
    count: int | None = None
    for_: str | None = None
    limit: int | None = None
    stats: bool = False
    raw: bool = False
    strict: bool = False
    lenient: bool = False
    output: Output = "table"
    login: Login = msgspec.field(default_factory=Login)

    def check(self) -> None:
        """Raise UsageError for options that exclude each other or are out of range."""
        if self.stats and self.output in ("line", "csv"):
            raise UsageError(f"--stats has the formats table and json, not {self.output}")
        if self.stats and self.raw:
            raise UsageError("--stats and --raw cannot be combined")
        limits = self.count, self.limit
        if (limits[0] is not None and limits[0] < 1) or (limits[1] is not None and limits[1] < 0):
            raise UsageError("--count must be at least 1, --limit at least 0")
        _ = self.begin  # a time that is none is an error before anything is connected
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
        """Whether stored messages are shown first."""
        return self.last is not None or self.since is not None or self.all_

    @property
    def begin(self) -> int | None:
        """Where the stored messages begin, in nanoseconds since the epoch; None for all of them."""
        if self.last is not None:
            return int((time.time() - (seconds(self.last, "--last") or 0.0)) * 1e9)
        return int(point_in_time(self.since) * 1e9) if self.since is not None else None

    @property
    def kinds(self) -> list[Kind]:
        """The kinds shown: those given, else all that the format supports."""
        if self.kind:
            return self.kind
        is_for_lines = self.output in ("line", "csv") and not self.raw
        return list(LINE_KINDS if is_for_lines else get_args(Kind))

    def nodes(self) -> list[str]:
        """Return patterns of nodes; node lists are expanded."""
        if not self.node:
            return []
        from ccpipe.formats.nodelist import expand

        found: list[str] = []
        for text in self.node:
            if re.search(r"[*?]|\[[^]0-9]", text):
                found.append(text)
                continue
            try:
                found += expand(text)
            except DataError as error:
                raise UsageError(f"--node {text}: {error}") from None
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
