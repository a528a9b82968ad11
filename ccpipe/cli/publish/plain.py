"""Plain command lines of ``publish`` without the library that parses the others.

A publisher runs on every node for months, and that library would be a tenth of its memory.
Whatever is not plain, a mistake or ``--help`` above all, is left to the command itself.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from ccpipe.cli.console.arguments import seconds
from ccpipe.cli.console.where import Where
from ccpipe.config import Interval
from ccpipe.node.agent.agent import Agent
from ccpipe.telemetry import Telemetry

VALUES = ("--cluster", "--config", "--for", "--interval", "--server")
"""The options of a service, each with a value."""


def parse(words: Sequence[str]) -> dict[str, str] | None:
    """Return the values of a plain command line by option; None for any other."""
    found: dict[str, str] = {}
    rest = iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        value = value if equals else next(rest, "")
        if name not in VALUES or name in found or not value or value.startswith("-"):
            return None
        found[name] = value
    return found


def agent_of(where: Where, interval: str | None, *, once: bool = False) -> Agent:
    """Return the publisher of a configuration, which it loads anew with every reload."""
    seconds(interval, "--interval", Interval)
    return Agent(
        lambda: where.site(**{"publish.interval": interval}),
        where.path(),
        once=once,
        telemetry=Telemetry(),
    )


def run(words: Sequence[str]) -> bool:
    """Run ``publish`` where the words after it are plain; return whether they were."""
    found = parse(words)
    if found is None:
        return False
    config = found.get("--config")
    where = Where(
        config=Path(config) if config else None,
        server=found.get("--server"),
        cluster=found.get("--cluster"),
    )
    agent = agent_of(where, found.get("--interval"))
    asyncio.run(agent.run(seconds(found.get("--for"), "--for")))
    return True
