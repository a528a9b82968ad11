"""Slurm's rows as runs: each with its steps, and as scheduler-independent columns."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.accounting.slurm import COLUMNS, SLURM, UNFINISHED, group_steps, to_table
from ccpipe.accounting.sums import Sums
from ccpipe.formats.slurm.records import SacctRow, SlurmId
from ccpipe.formats.slurm.text import SacctReader

HEAD = "JobID|State|ElapsedRaw|AllocCPUS|NTasks|MaxRSS|TotalCPU|ReqMem|TRESUsageInTot|AllocTRES\n"


def rows(*lines: str) -> list[SacctRow]:
    """Read rows of these columns."""
    reading = SacctReader().read((HEAD + "".join(f"{line}\n" for line in lines)).encode())
    assert not reading.rejected
    return reading.records


def test_job_memory_is_largest_of_steps() -> None:
    """All tasks of a step together: Slurm's sum, else the largest task times their number."""
    (run,) = group_steps(
        rows(
            "3|COMPLETED|55|4|||00:28.382|1600M||",
            "3.batch|COMPLETED|55|4|1|20M|00:01|||",
            "3.0|COMPLETED|20|4|4|100M|00:20|||",
            "3.1|COMPLETED|20|4|4|120M|00:07||mem=300M|",
        )
    )
    assert (run.max_rss, run.memory) == (120 * 2**20, 400 * 2**20)
    assert run.total_cpu == pytest.approx(28.382)
    assert run.efficiency == pytest.approx(28.382 / 220)


def test_job_cpu_time_falls_back_to_steps() -> None:
    """As in sacct's JSON of 22.05."""
    (run,) = group_steps(rows("3|FAILED|5|1||||||", *("3.0|FAILED|5|1|1||00:02|||",) * 2))
    assert run.total_cpu == 4


def test_job_derives_missing_columns() -> None:
    """CPUs from the TRES, their time from the elapsed time, CPU time from its parts."""
    text = b"JobID|State|ElapsedRaw|AllocTRES|UserCPU|SystemCPU\n3|COMPLETED|5|cpu=4|00:06|00:04\n"
    (run,) = group_steps(SacctReader().read(text).records)
    assert (run.job.alloc_cpus, run.job.cpu_time, run.total_cpu, run.efficiency) == (4, 20, 10, 0.5)


def test_group_steps_reports_orphan_steps_and_bad_resources() -> None:
    """All other rows count."""
    problems: list[str] = []
    runs = list(
        group_steps(
            rows(
                "9.0|COMPLETED|1|1|1|||||", "3|COMPLETED|55|4||||||cpu", "4.0|COMPLETED|1|1|1|||||"
            ),
            problems.append,
        )
    )
    assert [run.job.id.job for run in runs] == [3]
    assert [text.split(":")[0] for text in problems] == ["step 9.0", "step 4.0", "job 3"]


def test_job_ends_with_last_run_and_het_job_once() -> None:
    """Runs are counted where they ended, jobs once."""
    sums = Sums(scheduler=SLURM)
    runs = list(
        group_steps(
            rows(
                "22|REQUEUED|30|1||||||", "22|COMPLETED|120|1||||||", "17+0|COMPLETED|5|1||||||",
                "17+1|COMPLETED|5|1||||||", "30|RUNNING|7|1||||||", "31|NODE_FAIL|7|1||||||",
            )
        )
    )  # fmt: skip
    sums.add(to_table(runs, sums.columns))
    (total,) = sums.totals()
    assert (total.records, total.runs, total.jobs, total.failed) == (6, 5, 3, 1)
    assert total.outcomes == {"REQUEUED": 1, "COMPLETED": 3, "NODE_FAIL": 1}
    assert total.sums["ElapsedRaw"] == 174


@given(
    st.lists(
        st.builds(
            SacctRow,
            st.builds(SlurmId, st.integers(1, 3), st.sampled_from(["", "batch", "0"])),
            state=st.sampled_from([None, "COMPLETED", *sorted(UNFINISHED)]),
            submit=st.none() | st.integers(0, 2**62),
            start=st.none() | st.integers(0, 2**62),
            elapsed=st.none() | st.integers(0, 10**9),
            alloc_cpus=st.none() | st.integers(0, 10**6),
            total_cpu=st.none() | st.floats(0, 1e9),
            max_rss=st.none() | st.integers(0, 2**50),
            req_mem=st.none() | st.integers(0, 2**50),
            req_mem_of=st.sampled_from([None, "job", "cpu", "node"]),
            alloc_tres=st.none() | st.text(max_size=20),
            tres_usage_in_tot=st.none() | st.text(max_size=20),
        ),
        max_size=20,
    )
)
def test_sums_accept_any_rows(found: list[SacctRow]) -> None:
    """Every job's row is a run; every other row belongs to a run or is reported."""
    problems: list[str] = []
    runs = list(group_steps(found, problems.append))
    assert [(run.job.id, run.job.state, run.job.elapsed) for run in runs] == [
        (row.id, row.state, row.elapsed) for row in found if not row.is_step
    ]
    table = to_table(runs, tuple(COLUMNS))
    sums = Sums(["state", "day", "job"], scheduler=SLURM, percentages=[50])
    sums.add(table)
    assert sum(total.records for total in sums.totals()) == len(runs)
