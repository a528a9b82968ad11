"""``ccpipe validate``: check recipes, configuration and data files."""

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from cyclopts import Parameter

from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.subjects import Subjects
from ccpipe.cli.console.options import DURATION, Lenient, On, SiteOptions, refuse_options, seconds
from ccpipe.cli.convert.converters import read_envelopes
from ccpipe.cli.recipe.probe import Fault, RecipeProbe, stream_faults, unreachable
from ccpipe.cli.recipe.shipped import RecipePath, find_recipe
from ccpipe.config import Site, load, read_toml
from ccpipe.errors import (
    CcpipeError,
    ConfigError,
    CreateError,
    DataError,
    DeniedError,
    MissingInputError,
    UnavailableError,
    UsageError,
)
from ccpipe.formats.files import COMPRESSED, LinesBlock, open_stream, read_blocks
from ccpipe.formats.gridengine import read_stream
from ccpipe.formats.lineprotocol import Dialect, Lines, decode
from ccpipe.formats.sonar import Problem, ReadProfile, RejectedEnvelope
from ccpipe.node.agent.parts import AgentParts
from ccpipe.telemetry import Telemetry
from ccpipe.terminal import Progress, paint, printable, working

LINE_SUFFIXES = {".lp", ".line", ".txt"}

RECIPE_KEYS = {"source", "translate", "sink", "batch"}
"""Top-level keys that only recipes have."""

BY_SEVERITY = tuple(
    kind.exit_code
    for kind in (
        ConfigError,
        DataError,
        MissingInputError,
        UsageError,
        CreateError,
        DeniedError,
        UnavailableError,
        CcpipeError,
    )
)
"""Exit codes, the most severe first: it becomes the exit code of the command."""


async def validate(
    *files: Annotated[RecipePath, Parameter(allow_leading_hyphen=True)],
    from_: Annotated[
        Literal["auto", "line", "sonar", "gridengine"], Parameter(name="--from")
    ] = "auto",
    strict: bool = False,
    dialect: Dialect = "cc",
    lenient: Lenient = False,
    sonar_profile: ReadProfile = "auto",
    connect: On = True,
    timeout: Annotated[str, DURATION] = "10s",
    output: Annotated[Literal["text", "json"], Parameter(alias="-o")] = "text",
    where: SiteOptions = SiteOptions(),
) -> None:
    """Check recipes, configuration and data files.

    A TOML file with [source] is a recipe: its parts are constructed as in a
    bridge, and connections to their stores and brokers are tested. Any other
    TOML file is configuration. Data files are read line by line. All files are
    checked; the exit code is 78 for invalid configuration, 65 for invalid data,
    73 if a directory cannot be written to, 69 if a store or broker cannot be
    reached.

    Examples:
      ccpipe validate bridges/*.toml --no-connect
      ccpipe validate /etc/ccpipe/ccpipe.toml --timeout 3s
      ccpipe validate --strict --from sonar -o json 0+sample-c1.json | jq .rule

    Parameters
    ----------
    files
        TOML files or names of recipes, and data files ending in .lp, .line or
        .txt, compressed or not.
    from_
        Format of data files; auto uses the suffix. - reads standard input.
    strict
        Check each message or envelope against all rules of the specification.
    dialect
        Dialect of the line protocol: ClusterCockpit's or InfluxDB's.
    sonar_profile
        Encoding of Sonar JSON: as specified, as Sonar writes it, or detected from the producer.
    connect
        Test connections to stores and brokers.
    timeout
        Maximum time for each to respond.
    output
        Output format: text, or json with one object per line.
    """
    if not files:
        raise UsageError("no file given: `ccpipe validate FILE…`")
    refuse_options(files)
    where.flags()  # raises for a wrong flag once, not for each file
    limit = (seconds(timeout, "--timeout") or 0.0) if connect else None
    read = functools.partial(decode, dialect=dialect, lenient=lenient)
    codes: set[int] = set()
    for path in files:
        check = _Check(path, where, limit, output)
        try:
            path = check.path = find_recipe(path, where.path())  # noqa: PLW2901 - a name becomes a path
            if from_ == "sonar":
                check.envelopes(sonar_profile, strict=strict)
            elif from_ == "gridengine":
                check.accounting()
            elif from_ == "line" or is_data(path):
                check.data(read, strict=strict)
            elif RECIPE_KEYS.isdisjoint(read_toml(path)):
                await check.configuration()
            else:
                await check.recipe()
        except CcpipeError as error:
            check.fail(error)
        check.finish()
        codes |= check.codes
    for code in BY_SEVERITY:
        if code in codes:
            sys.exit(code)


def is_data(path: Path) -> bool:
    suffixes = [suffix for suffix in path.suffixes if suffix not in COMPRESSED]
    suffix = suffixes[-1] if suffixes else ""
    if suffix not in {".toml", *LINE_SUFFIXES}:
        if not path.exists():
            raise MissingInputError(f"{path}: neither a file nor the name of a recipe")
        if path.is_dir():
            raise MissingInputError(f"{path}: is a directory")
        known = ", ".join(sorted(LINE_SUFFIXES))
        raise UsageError(f"{path}: unknown suffix (expected .toml, {known}); use --from for data")
    return suffix in LINE_SUFFIXES


class _Check:
    """The check of one file and its findings."""

    def __init__(
        self, path: Path, where: SiteOptions, timeout: float | None, output: Literal["text", "json"]
    ) -> None:
        self.path = path
        self.where = where
        self.timeout = timeout
        self.output = output
        self.codes: set[int] = set()
        self.what = ""
        self.facts: dict[str, int] = {}
        self.progress = Progress()

    async def recipe(self) -> None:
        """Construct all parts of a recipe, then test their connections."""
        self.what = "recipe"
        probe = RecipeProbe(self.path, self.where)
        self.what = f"recipe, {probe.parts}"
        with working(f"{self.path}: connecting to {probe.parts}"):
            faults = await probe.faults(self.timeout)
        self.report_all(faults)

    async def configuration(self) -> None:
        self.what = "configuration"
        site = load(self.path, Site, flags=self.where.flags())
        Subjects.of(site)
        AgentParts.of(site, self.path, Telemetry())
        bus = Connection(site.bus, name="validate", telemetry=Telemetry(), forever=False)
        if self.timeout is not None:
            with working(f"{self.path}: connecting to the broker"):
                faults = await unreachable("bus", bus, self.timeout)
                faults = faults or await stream_faults(site, self.timeout)
            self.report_all(faults)

    def report_all(self, faults: Sequence[Fault]) -> None:
        for fault in faults:
            self.report(fault.text.removeprefix(f"{self.path}: "), code=fault.code)

    def data(self, read: Callable[[bytes], Lines], *, strict: bool) -> None:
        self.what = "line protocol"
        with open_stream(self.path) as stream:
            self.facts = {"values": 0, "rejected": 0} | ({"problems": 0} if strict else {})
            for block in read_blocks(stream, read):
                self.show_progress()
                self.facts["values"] += len(block.lines)
                self.facts["rejected"] += len(block.lines.rejected)
                for bad in block.lines.rejected:
                    self.report(
                        str(bad.rule), line=bad.line, column=bad.column, excerpt=bad.excerpt
                    )
                if strict:
                    self.check_rules(block)

    def envelopes(self, profile: ReadProfile, *, strict: bool) -> None:
        self.what = "Sonar's JSON"
        self.facts = {"envelopes": 0, "rejected": 0}
        with open_stream(self.path) as stream:
            for found in read_envelopes(stream, profile=profile, strict=strict):
                self.show_progress()
                self.facts["envelopes"] += len(found)
                self.facts["rejected"] += len(found.rejected)
                for bad in found.rejected:
                    for problem in bad.problems:
                        self.report_problem(bad, problem)

    def accounting(self) -> None:
        self.what = "Grid Engine's accounting"
        self.facts = {"records": 0, "rejected": 0}
        with open_stream(self.path) as stream:
            for part in read_stream(stream):
                self.show_progress()
                self.facts["records"] += len(part.records)
                self.facts["rejected"] += len(part.rejected)
                for bad in part.rejected:
                    excerpt = printable(repr(bad.original[:60]))
                    self.report(bad.reason, line=bad.line, excerpt=excerpt)

    def show_progress(self) -> None:
        """Show what was read; the first of the facts is how much."""
        what, count = next(iter(self.facts.items()))
        self.progress.show(f"{self.path}: {what} {count}")

    def report_problem(self, bad: RejectedEnvelope, problem: Problem) -> None:
        value = problem.value
        if not isinstance(value, str | bool | float | None):
            value = printable(f"{value!r:.80}")  # readers of JSON may not accept it
        place = {"offset": bad.offset, "path": problem.path, "rule": problem.rule, "value": value}
        excerpt = bad.excerpt if problem.value is None else ""
        self.report(printable(str(problem)), line=bad.line, excerpt=excerpt, place=place)

    def check_rules(self, block: LinesBlock) -> None:
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
        self.codes.add(code)
        self.progress.clear()
        if self.output == "json":
            if place is None:
                place = {"column": column}
            where = {"line": line, **place, "excerpt": excerpt} if line else {}
            _print_line({"file": str(self.path), **where, "reason": reason})
        else:
            place_ = f":{line}" * bool(line) + f": column {column}" * bool(column)
            print(f"{self.path}{place_}: {reason}" + (f": {excerpt}" if excerpt else ""))

    def finish(self) -> None:
        good = not self.codes
        self.progress.clear()
        if self.output == "json":
            _print_line({"file": str(self.path), "what": self.what, "good": good, **self.facts})
            return
        counts = [f"{what} {count}" for what, count in self.facts.items()]
        verdict = paint("OK  ", "green") if good else paint("FAIL", "red")
        print(f"{verdict} {', '.join(filter(None, [str(self.path), self.what, *counts]))}")


def _print_line(value: object) -> None:
    print(msgspec.json.encode(value).decode())
