"""The command ``ccpipe doctor``."""

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Annotated

from ccpipe.bus.nats.connection import Connection
from ccpipe.cli.check import Finding, Status, worst
from ccpipe.cli.console.options import DURATION, SiteOptions, seconds
from ccpipe.cli.console.output import Output, print_json, table, terminal_width
from ccpipe.cli.doctor.broker import broker
from ccpipe.cli.doctor.machine import disks, software, spools, state_directories, units
from ccpipe.cli.recipe.probe import RecipeProbe
from ccpipe.cli.recipe.shipped import RecipePath, find_recipe, own_recipes
from ccpipe.config import Site
from ccpipe.errors import CcpipeError
from ccpipe.telemetry import Telemetry
from ccpipe.terminal import paint, printable, working

COLOURS = {
    Status.OK: "green",
    Status.WARNING: "yellow",
    Status.CRITICAL: "red",
    Status.UNKNOWN: "dim",
}


async def doctor(
    *recipes: RecipePath,
    timeout: Annotated[str, DURATION] = "5s",
    output: Output = "table",
    where: SiteOptions = SiteOptions(),
) -> None:
    """Check this machine, the broker and the site's recipes, as support would.

    Shows versions, configuration, the broker's answer, clock and permissions,
    streams with the lag of each bridge, spool, free disk space, stores and
    systemd units. Changes and publishes nothing. The exit code is 0 if all is
    well, 1 for warnings, 2 if something does not work.

    Examples:
      ccpipe doctor
      ccpipe doctor victoriametrics parquet --server nats://10.0.0.1:4222
      ccpipe doctor -o json | jq '.findings[] | select(.status != "OK")'

    Parameters
    ----------
    recipes
        Recipes to check, as files or by name; default: those in bridges/ next to
        the configuration file.
    timeout
        Maximum time for each store to respond.
    """
    limit = seconds(timeout, "--timeout") or 0.0
    where.flags()  # raises UsageError: wrong options are no finding
    with working("checking"):
        findings = [finding async for finding in _all(recipes, limit, where)]
    if output == "json":
        rows = [
            {"check": each.label, "status": each.status.name, "finding": each.text}
            for each in findings
        ]
        print_json({"status": worst(findings).name, "findings": rows})
    else:
        _print(findings)
    serious = {each.status for each in findings} - {Status.UNKNOWN}
    sys.exit(max(serious))


async def _all(recipes: Sequence[Path], limit: float, where: SiteOptions) -> AsyncIterator[Finding]:
    for finding in software():
        yield finding
    try:
        site = where.site()
    except CcpipeError as error:
        yield Finding("configuration", Status.CRITICAL, str(error))
        return
    found = where.path()
    text = f"{found} is valid" if found else "no file, so defaults apply"
    yield Finding("configuration", Status.OK, f"{text}; the cluster is {site.cluster}")
    async for finding in _bus(site):
        yield finding
    for finding in spools(site):
        yield finding
    directories = state_directories()
    for path in recipes or own_recipes(where.path()).values():
        finding, directory = await _recipe(path, limit, where)
        yield finding
        directories += [directory] if directory else []
    for finding in [*disks(directories), *await asyncio.to_thread(lambda: list(units()))]:
        yield finding


async def _bus(site: Site) -> AsyncIterator[Finding]:
    bus = Connection(site.bus, name="doctor", telemetry=Telemetry(), forever=False)
    try:
        async with bus:
            async for finding in broker(bus, site):
                yield finding
    except CcpipeError as error:
        yield Finding("broker", Status.CRITICAL, str(error))


async def _recipe(path: Path, limit: float, where: SiteOptions) -> tuple[Finding, Path | None]:
    """Return what is found about a recipe, and the directory that its sink writes to."""
    directory = None
    try:
        probe = RecipeProbe(find_recipe(path, where.path()), where)
        faults = [fault.text for fault in await probe.faults(limit)]
        if text := probe.recipe.sink.get("dir"):
            directory = Path(str(text))
    except CcpipeError as error:
        faults = [str(error)]
    label = f"recipe {path.stem}"
    if faults:
        return Finding(label, Status.CRITICAL, "; ".join(faults)), directory
    return Finding(label, Status.OK, f"{probe.parts} answers"), directory


def _print(findings: Sequence[Finding]) -> None:
    rows = [(each.status.name, each.label, printable(each.text)) for each in findings]
    heads, *lines = table(rows, ("STATUS", "CHECK", "FINDING"), width=terminal_width())
    print(heads)
    for text in lines:
        word = text.partition(" ")[0]
        colour = COLOURS[Status[word]] if word in Status.__members__ else ""
        print(paint(word, colour) + text[len(word) :])
