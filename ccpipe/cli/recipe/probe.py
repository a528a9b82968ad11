"""Constructing the parts of a recipe and testing their connections, for `validate` and `doctor`."""

import asyncio
import contextlib
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

from ccpipe.bus.nats.connection import Connection
from ccpipe.bus.nats.streams.reconcile import check_streams
from ccpipe.cli.console.options import SiteOptions
from ccpipe.cli.recipe.shipped import load_recipe
from ccpipe.config import Site
from ccpipe.errors import CcpipeError, ConfigError, DeniedError, UnavailableError
from ccpipe.pipeline import check_fit
from ccpipe.registry import build
from ccpipe.telemetry import Telemetry


class Fault(NamedTuple):
    """What is wrong, and the exit code for it."""

    text: str
    code: int

    @classmethod
    def of(cls, error: CcpipeError, key: str = "") -> "Fault":
        return cls(f"{key}: {error}" if key else str(error), error.exit_code)


@runtime_checkable
class Checkable(Protocol):
    """A part that can check its connection without changing anything."""

    async def check(self) -> None:
        """Connect once; raises UnavailableError, DeniedError or ConfigError."""
        ...


class RecipeProbe:
    """A recipe whose parts are constructed as in a bridge."""

    def __init__(self, path: Path, where: SiteOptions) -> None:
        """Load the recipe; raises CcpipeError if it cannot be read."""
        self.recipe = load_recipe(path, where)
        recipe = self.recipe
        between = [(f"translate[{i}]", "translators", t) for i, t in enumerate(recipe.translate)]
        self._tables = [
            ("source", "sources", recipe.source),
            *between,
            ("sink", "sinks", recipe.sink),
        ]
        self._place = str(path)

    @property
    def parts(self) -> str:
        """The names of its parts, in the order in which records pass them."""
        return " → ".join(str(table.get("use")) for *_, table in self._tables)

    async def faults(self, seconds: float | None) -> list[Fault]:
        """Return what is wrong; `seconds` limits each connection, None tests none."""
        found, parts = [], []
        context = {"site": self.recipe, "telemetry": Telemetry()}
        for key, group, table in self._tables:
            try:
                part = build(group, table, where=self._place, path=key, context=context)
            except CcpipeError as error:
                found.append(Fault.of(error))
            else:
                parts.append((key, part))
        if len(parts) == len(self._tables):
            source, *translators, sink = [part for _, part in parts]
            try:
                check_fit(source, translators, sink)
            except CcpipeError as error:
                found.append(Fault.of(error))
        if seconds is None:
            return found
        for key, part in parts:
            found += await unreachable(key, part, seconds)
        if not found and "nats" in (self.recipe.source.get("use"), self.recipe.sink.get("use")):
            found += await stream_faults(self.recipe, seconds)
        return found


async def unreachable(key: str, part: object, seconds: float) -> list[Fault]:
    """Return why the connection of a part cannot be made, if it has one."""
    try:
        async with asyncio.timeout(seconds):
            if isinstance(part, Checkable):
                await part.check()
            elif isinstance(part, contextlib.AbstractAsyncContextManager):
                async with part:
                    pass
    except TimeoutError:
        return [Fault.of(UnavailableError(f"no answer within {seconds:g} s"), key)]
    except CcpipeError as error:
        return [Fault.of(error, key)]
    return []


async def stream_faults(site: Site, seconds: float) -> list[Fault]:
    """Compare the broker's streams with the configuration, if permitted.

    A publisher's user may not examine them, and a broker without JetStream has none.
    """
    if not site.bus.jetstream:
        return []
    bus = Connection(site.bus, name="validate", telemetry=Telemetry(), forever=False)
    with contextlib.suppress(UnavailableError, DeniedError, TimeoutError):
        async with asyncio.timeout(seconds), bus:
            try:
                await check_streams(bus, site)
            except ConfigError as error:
                return [Fault.of(error)]
    return []
