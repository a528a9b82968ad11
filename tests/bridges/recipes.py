"""Shipped recipes, changed for a test, and processes of ccpipe that run them."""

import asyncio
from asyncio.subprocess import Process
from collections.abc import Mapping
from pathlib import Path

from ccpipe.process.die_with_parent import die_with_parent
from tests.cli.command import command, environment
from tests.paths import ROOT


def changed(name: str, directory: Path, changes: Mapping[str, str]) -> Path:
    """Write a shipped recipe to a directory, which has its state too."""
    text = (ROOT / "bridges" / name).read_text()
    for old, new in {'"/var/lib/ccpipe/': f'"{directory}/', **changes}.items():
        assert old in text
        text = text.replace(old, new)
    (directory / name).write_text(text)
    return directory / name


async def started(*arguments: object, **environ: str) -> Process:
    return await asyncio.create_subprocess_exec(
        *command(*arguments), env=environment(**environ), preexec_fn=die_with_parent
    )


async def completed(*arguments: object, **environ: str) -> None:
    process = await started(*arguments, **environ)
    assert await asyncio.wait_for(process.wait(), 60) == 0
