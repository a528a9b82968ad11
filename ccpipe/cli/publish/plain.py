"""Simple command lines of ``publish`` without cyclopts.

A publisher runs on every node for months, and cyclopts would take a tenth of its memory. Anything
else, mistakes and ``--help`` above all, is left to the command itself.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from ccpipe.cli.console.arguments import seconds
from ccpipe.cli.console.plain import read
from ccpipe.cli.console.where import Where
from ccpipe.config import Interval
from ccpipe.node.agent.agent import Agent
from ccpipe.telemetry import Telemetry

SERVICE = {"cluster", "config", "for", "interval", "server"}
"""The options used in services; for all others, cyclopts is imported."""


def parse(words: Sequence[str]) -> dict[str, Any] | None:
    """Return the values of a simple command line by option; None for any other."""
    found = read("publish", words)
    return found if found is not None and found.keys() <= SERVICE else None


def agent_of(where: Where, interval: str | None, *, once: bool = False) -> Agent:
    """Return the publisher of a configuration, which is reloaded with each reload."""
    seconds(interval, "--interval", Interval)
    return Agent(
        lambda: where.site(**{"publish.interval": interval}),
        where.path(),
        once=once,
        telemetry=Telemetry(),
    )


def run(words: Sequence[str]) -> bool:
    """Run ``publish`` if its arguments are simple; return whether they were."""
    found = parse(words)
    if found is None:
        return False
    after = seconds(found.pop("for", None), "--for")
    interval = found.pop("interval", None)
    asyncio.run(agent_of(Where(**found), interval).run(after))
    return True
