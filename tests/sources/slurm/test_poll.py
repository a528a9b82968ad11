"""Running Slurm's commands, and selecting new records of their output."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import UnavailableError
from ccpipe.formats.slurm.records import Allocation
from ccpipe.formats.slurm.text import SqueueReader
from ccpipe.formats.sonar import timestamp
from ccpipe.sources.slurm.poll import (
    SACCT_COLUMNS,
    SEPARATOR,
    Commands,
    Poller,
    pending_if_requeued,
    printed_jobs,
    read_details,
    sacct_records,
)
from ccpipe.translate.slurm.jobs import has_started
from tests.formats.slurm.captured import captured
from tests.sources.slurm.programs import Programs, sacct_row, scontrol_job, squeue_job


def poller(programs: Programs) -> Poller:
    commands = Commands(directory=str(programs.directory), timeout=10)
    return Poller(commands, accounting=True, uncompleted=False)


def test_sacct_parser_finds_ends_of_rows() -> None:
    """A name may contain newlines; an invalid line affects only the row it is in."""
    rows = [sacct_row("7", "COMPLETED", jobname="a\nb\n"), sacct_row("8", "COMPLETED")]
    output = "".join(f"{row}\n" for row in rows).encode()
    assert list(sacct_records(output)) == [row.encode() for row in rows]
    assert list(sacct_records(b"")) == []
    assert list(sacct_records(b"cut off")) == [b"cut off\n"]


@given(st.lists(st.text(st.characters(exclude_characters="\x1f", codec="utf-8"), min_size=1)))
def test_sacct_parser_keeps_any_name(names: list[str]) -> None:
    rows = [sacct_row(str(n), "COMPLETED", jobname=name) for n, name in enumerate(names, 1)]
    found = list(sacct_records("\n".join(rows).encode()))
    assert found == [row.encode() for row in rows]


@given(st.binary())
def test_sacct_parser_reads_or_rejects_any_bytes(output: bytes) -> None:
    for record in sacct_records(output):
        assert record.count(SEPARATOR.encode()) <= max(
            len(SACCT_COLUMNS) - 1, output.count(SEPARATOR.encode())
        )


def test_requeued_job_whose_epilog_runs_is_pending(programs: Programs) -> None:
    """Squeue shows the nodes of the run that ended and a start that never was."""
    now = datetime.now(UTC)
    start, end = (time.strftime("%Y-%m-%dT%H:%M:%S") for time in (now, now + timedelta(minutes=10)))
    requeued = squeue_job("7", "COMPLETING", start=start, end=end)
    programs.set_squeue(requeued, squeue_job("8", "COMPLETING"))
    jobs = {job.id.job: job for job in poller(programs).poll(0, 1, with_nodes=False).jobs}
    assert (jobs[7].state, jobs[7].start, jobs[7].node_list) == ("PENDING", None, None)
    assert (jobs[8].state, jobs[8].node_list) == ("COMPLETING", "c1")


def test_end_of_requeueable_run_waits_for_squeue(programs: Programs) -> None:
    """While slurmctld does not answer it is unknown whether a job that lost its node runs again."""
    end = "2026-11-20T10:05:00"
    programs.set_sacct(
        *(sacct_row(job, state, end=end)
          for job, state in (("6", "COMPLETED"), ("7", "NODE_FAIL"), ("7.0", "NODE_FAIL")))
    )  # fmt: skip
    programs.set("squeue", None)
    found = poller(programs)
    assert [str(row.id) for row in found.poll(0, 1, with_nodes=False).rows] == ["6", "7.0"]
    assert not found.poll(0, 1, with_nodes=False).rows
    programs.set_squeue(squeue_job("7", "PENDING"))
    assert [str(row.id) for row in found.poll(0, 1, with_nodes=False).rows] == ["7"]
    assert not found.poll(0, 1, with_nodes=False).rows


def test_poller_skips_unchanged_records(programs: Programs) -> None:
    programs.set_sacct(sacct_row("6", "COMPLETED", end="2026-11-20T10:05:00"))
    programs.set_squeue(squeue_job("7", "PENDING", priority=1))
    found = poller(programs)
    first = found.poll(0, 1, with_nodes=False)
    assert (len(first.rows), len(list(first.jobs)), first.listed) == (1, 1, frozenset({7}))
    programs.set_squeue(squeue_job("7", "PENDING", priority=2))
    second = found.poll(0, 1, with_nodes=False)
    assert (len(second.rows), len(list(second.jobs)), second.listed) == (0, 0, frozenset({7}))
    found.forget()
    third = found.poll(0, 1, with_nodes=False)
    assert (len(third.rows), len(list(third.jobs))) == (1, 1)


def test_scontrol_parser_reads_only_wanted_jobs() -> None:
    output = "".join(scontrol_job(str(n)) for n in range(1, 100)).encode()
    found = read_details(printed_jobs(output, {7, 9, 1000}))
    assert set(found) == {7, 9}
    assert found[7].oversubscribe == "OK"
    assert found[7].allocation == (Allocation(node_list="c1", cpu_ids="0-1", memory=600 * 2**20),)


def test_scontrol_parser_reads_captured_allocations() -> None:
    output = captured("scontrol/phase1_linux.show_job_d.txt")
    found = read_details(printed_jobs(output, set(range(1000))))
    assert len(found) == output.count(b"\nJobId=") + 1
    assert sum(bool(detail.allocation) for detail in found.values()) > len(found) / 2


@pytest.mark.parametrize(
    ("start", "end", "limit", "is_requeued"),
    [
        ("04:05:33", "04:15:33", "10:00", True),
        ("04:12:06", "NONE", "UNLIMITED", True),
        ("N/A", "N/A", "10:00", True),
        ("04:05:15", "04:05:18", "10:00", False),
        ("03:55:33", "04:05:33", "10:00", False),
        ("04:05:15", "04:05:34", "10:00", False),
        ("04:05:15", "04:05:18", "UNLIMITED", False),
    ],
)
def test_requeued_job_is_pending_while_its_last_run_completes(
    start: str, end: str, limit: str, is_requeued: bool
) -> None:
    """As squeue 22.05 prints it during an epilog: old nodes, start now, end at the time limit.

    A run that completes ended already, at its time limit, too, and also where slurmctld's clock is
    ahead by a second.
    """
    header = b"JOBID|STATE|SUBMIT_TIME|START_TIME|END_TIME|NODELIST|TIME_LIMIT\n"
    day = "2026-11-23T"
    begin, until = (f"{day}{text}" if ":" in text else text for text in (start, end))
    row = f"1|COMPLETING|{day}04:05:15|{begin}|{until}|c1|{limit}"
    (found,) = SqueueReader(zone=UTC).read(header + row.encode()).records
    now = timestamp.parse(f"{day}04:05:33Z")
    assert now is not None
    job = pending_if_requeued(found, now)
    if is_requeued:
        assert (job.state, job.start, job.node_list) == ("PENDING", None, None)
    else:
        assert job == found
        assert has_started(job)


HOUR = 3600 * 10**9


def test_sacct_is_queried_for_ends_in_utc(programs: Programs) -> None:
    commands = Commands(directory=str(programs.directory), timeout=10)
    commands.sacct(1795170834 * 10**9, 1795170834 * 10**9 + HOUR, uncompleted=False)
    commands.sacct(0, HOUR, uncompleted=True)
    ended, all_ = programs.calls()
    assert "--starttime 2026-11-20T10:33:54 --endtime 2026-11-20T11:33:54 TZ=UTC" in ended
    for word in ("--allusers", "--duplicates", "--noconvert", "NODE_FAIL", "PREEMPTED", "REQUEUED"):
        assert word in ended
    assert "--state" not in all_


def test_commands_query_cluster_of_configuration(programs: Programs) -> None:
    """Without one they query the cluster of the environment, or of this machine."""
    commands = Commands(directory=str(programs.directory), timeout=10, conf="/etc/slurm/alex.conf")
    commands.squeue()
    commands.sacct(0, HOUR, uncompleted=False)
    assert all(call.endswith(" SLURM_CONF=/etc/slurm/alex.conf") for call in programs.calls())


@pytest.mark.parametrize("name", ["squeue", "scontrol", "sinfo"])
def test_failed_command_is_named(programs: Programs, name: str) -> None:
    programs.set(name, None)
    with pytest.raises(UnavailableError, match=f"{name}.*down"):
        getattr(Commands(directory=str(programs.directory), timeout=10), name)()


def test_missing_script_is_error(programs: Programs) -> None:
    """Scontrol exits with 0 then, too."""
    commands = Commands(directory=str(programs.directory), timeout=10)
    programs.set_script(7, b"#!/bin/sh\n")
    programs.set_script(8, b"")
    assert commands.batch_script(7, 10) == b"#!/bin/sh\n"
    with pytest.raises(UnavailableError, match="scontrol write batch_script: printed nothing"):
        commands.batch_script(8, 10)


def test_missing_command_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="squeue: No such file"):
        Commands(directory=str(tmp_path), timeout=10).squeue()


def test_hanging_command_is_killed(programs: Programs) -> None:
    (programs.directory / "squeue").write_text("#!/bin/sh\nsleep 60\n")
    with pytest.raises(UnavailableError, match=r"squeue: took more than 0\.2 s"):
        Commands(directory=str(programs.directory), timeout=0.2).squeue()
