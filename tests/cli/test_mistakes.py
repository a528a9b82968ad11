"""Mistakes on the command line: every command reports each one in the same way."""

import asyncio
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pytest

from ccpipe.cli import COMMANDS
from ccpipe.cli.app import app, run
from ccpipe.cli.check import Status
from ccpipe.cli.console.help import command_entry, subcommands
from ccpipe.errors import UsageError
from tests.cli.command import ended, start
from tests.paths import TEST_DATA

NAMES = [f"{name} {sub}".strip() for name in COMMANDS for sub in (subcommands(app[name]) or [""])]
PARSED = {"INTEGER": "soon", "NUMBER": "soon", "CHOICE": "soon"}
"""Wrong values, by kind, that are found before a command starts."""
CHECKED = {"DURATION": "soon", "TIME": "soon", "URL": "http://a", "NODES": "n[1-"}
"""Those that a command finds."""
JOB = ["--input", str(TEST_DATA / "slurm_profile/merged/job_17.h5"), "--series", "Tasks"]
REQUIRED = {
    "bridge": ["null"], "query": ["select 1"], "convert": ["--to", "json"], "auth init": ["keys"],
    "backfill": ["a.lp", "--from", "file", "--to", "null"], "validate": ["a.lp"],
    "control set": ["interval", "1s", "--node", "a"], "acct index": ["--dir", "index"],
    "step": ["--publish", "--", "true"], "hdf5 merge": ["--job", "1"], "hdf5 extract": JOB,
    "hdf5 items": [*JOB, "--data", "RSS"], "hdf5 list": JOB, "hdf5 show": JOB,
    "hdf5 publish": JOB,
}  # fmt: skip
"""The arguments without which a command does not start."""


HYPHENS = {
    "acct gridengine", "acct slurm", "acct index", "convert", "send", "step", "validate",
    "nodelist expand", "nodelist compress", "nodelist count",
}  # fmt: skip
"""Commands one of whose arguments may be a hyphen: they find an unknown option themselves."""


class Mistake(NamedTuple):
    """A wrong command line, and texts that the message must contain."""

    words: list[str]
    expected: list[str]


def wrong_values(kinds: dict[str, str]) -> Iterator[Mistake]:
    for name in NAMES:
        entry = command_entry(app, name.split())
        for option in entry.options:
            kind = "CHOICE" if option.choices else option.value.removesuffix("...")
            if value := kinds.get(kind):
                rest = [*REQUIRED.get(name, [])]
                if option.names[0] in rest:
                    place = rest.index(option.names[0])
                    del rest[place : place + 2]
                yield Mistake(
                    [*name.split(), option.names[0], value, *rest], [option.names[0], value]
                )


def unknown_options(names: Iterable[str]) -> Iterator[Mistake]:
    for name in names:
        words = [*name.split(), "--bogus", *REQUIRED.get(name, [])]
        yield Mistake(words, ["--bogus"])


def missing_arguments() -> Iterator[Mistake]:
    for name in NAMES:
        entry = command_entry(app, name.split())
        if any(each.required for each in (*entry.arguments, *entry.options)):
            yield Mistake(name.split(), [" is missing", f"see ccpipe {name} --help"])


def begin() -> None:
    pytest.fail("the command line was accepted")


def test_mistakes_are_found_before_command_starts() -> None:
    """A wrong value, an unknown option, a missing argument: of each option and command."""
    unknown = unknown_options(set(NAMES) - HYPHENS - {"help", "query"})  # SQL may begin with --
    mistakes = [*wrong_values(PARSED), *unknown, *missing_arguments()]
    assert len(mistakes) > 100
    for mistake in mistakes:
        with pytest.raises(UsageError) as caught:
            run(mistake.words, begin)
        assert len(str(caught.value).splitlines()) == 1, mistake
        for text in mistake.expected:
            assert text in str(caught.value), mistake


@pytest.mark.long
async def test_mistakes_are_usage_errors_in_each_command() -> None:
    """Exit code 64, or Nagios' 3, and one line that names the option and the value."""
    mistakes = [*wrong_values(CHECKED), *unknown_options(HYPHENS)]
    assert len(mistakes) > 70
    limit = asyncio.Semaphore(2)

    async def is_reported(mistake: Mistake) -> bool:
        async with limit, asyncio.timeout(60):
            shown = await ended(await start(*mistake.words))
        is_check = mistake.words[0] == "check"
        message = shown.out if is_check else shown.err
        return (
            shown.code == (Status.UNKNOWN if is_check else 64)
            and len(message.splitlines()) == 1
            and all(text in message for text in mistake.expected)
        )

    reported = await asyncio.gather(*map(is_reported, mistakes))
    wrong = [each.words for each, is_ok in zip(mistakes, reported, strict=True) if not is_ok]
    assert wrong == []
