"""``ccpipe validate``: would this work? Recipes, configuration and data files."""

import asyncio
import contextlib
import functools
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol, runtime_checkable

import msgspec
from cyclopts import Parameter

from ccpipe.cli.bridge import load_recipe
from ccpipe.cli.options import Where, seconds
from ccpipe.config import Site, load, read_toml
from ccpipe.errors import (
    CcpipeError,
    ConfigError,
    DataError,
    DeniedError,
    UnavailableError,
    UsageError,
)
from ccpipe.formats.files import COMPRESSED, Block, open_stream, read_blocks
from ccpipe.formats.lineprotocol import Dialect, Lines, decode
from ccpipe.node.agent.parts import Parts
from ccpipe.pipeline import check_fit
from ccpipe.registry import build
from ccpipe.telemetry import Telemetry
from ccpipe.terminal import paint, printable

if TYPE_CHECKING:
    from ccpipe.formats.sonar import Problem, ReadProfile, RejectedEnvelope

LINE_SUFFIXES = {".lp", ".line", ".txt"}

RECIPE_KEYS = {"source", "translate", "sink", "batch"}
"""What only a recipe has at its top level."""

GRAVEST = tuple(
    kind.exit_code
    for kind in (ConfigError, DataError, UsageError, DeniedError, UnavailableError, CcpipeError)
)
"""Of several problems the first of these decides the exit code."""


@runtime_checkable
class Checkable(Protocol):
    """A part that can say whether its other side answers, without touching what is there."""

    async def check(self) -> None:
        """Ask once; raises UnavailableError, DeniedError or ConfigError."""
        ...


async def validate(
    *files: Annotated[Path, Parameter(allow_leading_hyphen=True)],
    format_: Annotated[
        Literal["auto", "line", "sonar", "gridengine"], Parameter(name="--format")
    ] = "auto",
    strict: bool = False,
    dialect: Dialect = "cc",
    lenient: bool = False,
    profile: Literal["auto", "spec", "sonar"] = "auto",
    connect: bool = True,
    timeout: str = "10s",
    output: Annotated[Literal["text", "json"], Parameter(alias="-o")] = "text",
    where: Where = Where(),  # noqa: B008 - frozen
) -> None:
    """Check recipes, configuration and data files.

    A TOML file with [source] is a recipe: its parts are made as a bridge would
    make them, and their stores and brokers are asked whether they answer. Any
    other TOML file is configuration. Data files are read line by line. All files
    are checked, whatever the first one says; the exit code is 78 for bad
    configuration, 65 for bad data, 69 where something cannot be reached.

    Examples:
      ccpipe validate bridges/*.toml --no-connect
      ccpipe validate /etc/ccpipe/ccpipe.toml --timeout 3s
      ccpipe validate --strict --format sonar -o json 0+sample-c1.json | jq .rule

    Parameters
    ----------
    files
        TOML files, and data files ending in .lp, .line or .txt, compressed or not.
    format_
        What data files hold; auto goes by the suffix, and - is standard input.
    strict
        Hold each message or envelope to the specification's rules for it too.
    dialect
        Whose line protocol it is: ClusterCockpit's or InfluxDB's own.
    lenient
        Accept what the specification's examples and real programs write against the grammar.
    profile
        How Sonar's JSON is encoded: as the specification says, as Sonar writes it, or by producer.
    connect
        Ask stores and brokers whether they answer.
    timeout
        How long each may take to answer.
    output
        How to show what was found: text for people, json for one object a line.
    """
    if not files:
        raise UsageError("which files? `ccpipe validate FILE…`")
    limit = (seconds(timeout, "--timeout") or 0.0) if connect else None
    read = functools.partial(decode, dialect=dialect, lenient=lenient)
    gravest: set[int] = set()
    for path in files:
        check = _Check(path, where, limit, output)
        try:
            if format_ == "sonar":
                check.envelopes(profile, strict=strict)
            elif format_ == "gridengine":
                check.accounting()
            elif format_ == "line" or is_data(path):
                check.data(read, strict=strict)
            elif RECIPE_KEYS.isdisjoint(read_toml(path)):
                await check.configuration()
            else:
                await check.recipe()
        except CcpipeError as error:
            check.fail(error)
        check.finish()
        gravest |= check.codes
    for code in GRAVEST:
        if code in gravest:
            sys.exit(code)


def is_data(path: Path) -> bool:
    """Say whether a file holds data, by its name; raises UsageError where it tells nothing."""
    suffixes = [suffix for suffix in path.suffixes if suffix not in COMPRESSED]
    suffix = suffixes[-1] if suffixes else ""
    if suffix not in {".toml", *LINE_SUFFIXES}:
        known = ", ".join(sorted(LINE_SUFFIXES))
        raise UsageError(
            f"{path}: it ends neither in .toml nor in {known}; data? then say --format line"
        )
    return suffix in LINE_SUFFIXES


class _Check:
    """What is found out about one file."""

    def __init__(
        self, path: Path, where: Where, timeout: float | None, output: Literal["text", "json"]
    ) -> None:
        self.path = path
        self.where = where
        self.timeout = timeout
        self.output = output
        self.codes: set[int] = set()
        self.what = ""
        self.facts: dict[str, int] = {}

    async def recipe(self) -> None:
        """Make the parts of a recipe, all of them, then ask each whether its other side answers."""
        self.what = "recipe"
        recipe = load_recipe(self.path, self.where)
        tables = [("sources", "source", recipe.source)]
        tables += [("translators", f"translate[{i}]", t) for i, t in enumerate(recipe.translate)]
        tables += [("sinks", "sink", recipe.sink)]
        context = {"site": recipe, "telemetry": Telemetry()}
        parts = []
        for group, key, table in tables:
            try:
                part = build(group, table, where=str(self.path), path=key, context=context)
            except CcpipeError as error:
                self.fail(error)
            else:
                parts.append((key, part))
        if len(parts) == len(tables):
            source, *translators, sink = [part for _, part in parts]
            try:
                check_fit(source, translators, sink)
            except CcpipeError as error:
                self.fail(error)
        self.what = f"recipe, {' → '.join(str(table.get('use')) for _, _, table in tables)}"
        for key, part in parts:
            await self.reach(key, part)

    async def configuration(self) -> None:
        """Read a site's configuration, make what it names, and ask for its broker."""
        from ccpipe.bus.nats.connection import Connection
        from ccpipe.bus.subjects import Subjects

        self.what = "configuration"
        site = load(self.path, Site, flags=self.where.flags())
        Subjects.of(site)
        Parts.of(site, self.path, Telemetry())
        bus = Connection(site.bus, name="validate", telemetry=Telemetry(), forever=False)
        await self.reach("bus", bus)

    async def reach(self, key: str, part: object) -> None:
        """Ask the other side of a part whether it answers, by the part's own ``check()``."""
        if self.timeout is None:
            return
        try:
            async with asyncio.timeout(self.timeout):
                if isinstance(part, Checkable):
                    await part.check()
                elif isinstance(part, contextlib.AbstractAsyncContextManager):
                    async with part:
                        pass
        except TimeoutError:
            self.fail(UnavailableError(f"{key}: no answer within {self.timeout:g} s"))
        except CcpipeError as error:
            self.report(f"{key}: {error}", code=error.exit_code)

    def data(self, read: Callable[[bytes], Lines], *, strict: bool) -> None:
        """Read lines; tell those that are rejected and, if `strict`, messages that break rules."""
        self.what = "line protocol"
        with open_stream(self.path) as stream:
            self.facts = {"values": 0, "rejected": 0} | ({"problems": 0} if strict else {})
            for block in read_blocks(stream, read):
                self.facts["values"] += len(block.lines)
                self.facts["rejected"] += len(block.lines.rejected)
                for bad in block.lines.rejected:
                    self.report(
                        str(bad.rule), line=bad.line, column=bad.column, excerpt=bad.excerpt
                    )
                if strict:
                    self.hold_to_rules(block)

    def envelopes(self, profile: "ReadProfile", *, strict: bool) -> None:
        """Read Sonar's JSON; tell each rule that an envelope breaks, those of types or all."""
        from ccpipe.cli.convert.sonar import read_envelopes

        self.what = "Sonar's JSON"
        self.facts = {"envelopes": 0, "rejected": 0}
        with open_stream(self.path) as stream:
            for good, rejected in read_envelopes(stream, profile=profile, strict=strict):
                self.facts["envelopes"] += len(good)
                self.facts["rejected"] += len(rejected)
                for bad in rejected:
                    for problem in bad.problems:
                        self.report_problem(bad, problem)

    def accounting(self) -> None:
        """Read Grid Engine's accounting; tell each line that is rejected."""
        from ccpipe.formats.gridengine import read_stream

        self.what = "Grid Engine's accounting"
        self.facts = {"records": 0, "rejected": 0}
        with open_stream(self.path) as stream:
            for part in read_stream(stream):
                self.facts["records"] += len(part.records)
                self.facts["rejected"] += len(part.rejected)
                for bad in part.rejected:
                    excerpt = printable(repr(bad.original[:60]))
                    self.report(bad.reason, line=bad.line, excerpt=excerpt)

    def report_problem(self, bad: "RejectedEnvelope", problem: "Problem") -> None:
        value = problem.value
        if not isinstance(value, str | bool | float | None):
            value = printable(f"{value!r:.80}")  # it may be beyond what JSON's readers take
        place = {"offset": bad.offset, "path": problem.path, "rule": problem.rule, "value": value}
        excerpt = bad.excerpt if problem.value is None else ""
        self.report(printable(str(problem)), line=bad.line, excerpt=excerpt, place=place)

    def hold_to_rules(self, block: Block) -> None:
        for line, message in block.numbered():
            for problem in message.problems():
                self.facts["problems"] += 1
                self.report(problem, line=line, excerpt=printable(message.name))

    def fail(self, error: CcpipeError) -> None:
        self.report(str(error).removeprefix(f"{self.path}: "), code=error.exit_code)

    def report(
        self,
        reason: str,
        *,
        line: int = 0,
        column: int = 0,
        excerpt: str = "",
        code: int = DataError.exit_code,
        place: Mapping[str, Any] | None = None,
    ) -> None:
        """Tell one finding, and remember the exit code that it asks for."""
        self.codes.add(code)
        if self.output == "json":
            if place is None:
                place = {"column": column}
            where = {"line": line, **place, "excerpt": excerpt} if line else {}
            _print_line({"file": str(self.path), **where, "reason": reason})
        else:
            place_ = f":{line}" * bool(line) + f": column {column}" * bool(column)
            print(f"{self.path}{place_}: {reason}" + (f": {excerpt}" if excerpt else ""))

    def finish(self) -> None:
        """Sum the file up in one line."""
        good = not self.codes
        if self.output == "json":
            _print_line({"file": str(self.path), "what": self.what, "good": good, **self.facts})
            return
        counts = [f"{what} {count}" for what, count in self.facts.items()]
        verdict = paint("good", "green") if good else paint("bad ", "red")
        print(f"{verdict} {', '.join(filter(None, [str(self.path), self.what, *counts]))}")


def _print_line(value: object) -> None:
    print(msgspec.json.encode(value).decode())
