"""Slurm's commands as they are run."""

from pathlib import Path

import pytest

from ccpipe.errors import UnavailableError
from ccpipe.sources.slurm.commands import Commands
from tests.sources.slurm.programs import Programs

HOUR = 3600 * 10**9


def test_sacct_asks_for_ends_in_utc(programs: Programs) -> None:
    commands = Commands(folder=str(programs.folder), timeout=10)
    commands.sacct(1795170834 * 10**9, 1795170834 * 10**9 + HOUR, uncompleted=False)
    commands.sacct(0, HOUR, uncompleted=True)
    ended, all_ = programs.calls()
    assert "--starttime 2026-11-20T10:33:54 --endtime 2026-11-20T11:33:54 TZ=UTC" in ended
    for word in ("--allusers", "--duplicates", "--noconvert", "NODE_FAIL", "PREEMPTED", "REQUEUED"):
        assert word in ended
    assert "--state" not in all_


@pytest.mark.parametrize("name", ["squeue", "scontrol", "sinfo"])
def test_failure_names_the_command(programs: Programs, name: str) -> None:
    programs.set(name, None)
    with pytest.raises(UnavailableError, match=f"{name}.*down"):
        getattr(Commands(folder=str(programs.folder), timeout=10), name)()


def test_job_without_a_script_is_an_error(programs: Programs) -> None:
    """Scontrol ends with 0 then, too."""
    commands = Commands(folder=str(programs.folder), timeout=10)
    programs.set_script(7, b"#!/bin/sh\n")
    programs.set_script(8, b"")
    assert commands.batch_script(7, 10) == b"#!/bin/sh\n"
    with pytest.raises(UnavailableError, match="scontrol write batch_script: printed nothing"):
        commands.batch_script(8, 10)


def test_missing_command_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="squeue: No such file"):
        Commands(folder=str(tmp_path), timeout=10).squeue()


def test_command_that_hangs_is_ended(programs: Programs) -> None:
    (programs.folder / "squeue").write_text("#!/bin/sh\nsleep 60\n")
    with pytest.raises(UnavailableError, match=r"squeue: took more than 0\.2 s"):
        Commands(folder=str(programs.folder), timeout=0.2).squeue()
