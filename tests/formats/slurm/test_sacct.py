"""sacct's text: every captured row, sums checked independently, and any columns."""

import io
import math
import re
from codecs import BOM_UTF8
from datetime import datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import DataError
from ccpipe.formats.slurm.json import read_json
from ccpipe.formats.slurm.records import ParsedOutput, SacctRow, SlurmId
from ccpipe.formats.slurm.text import SacctReader, read_sacct, sacct_fields, with_order
from ccpipe.formats.slurm.values import SECOND, TimeReader
from tests.formats.slurm.captured import OSLO, UTC, captured, names, raw_cells, raw_milliseconds

SONAR = captured("sacct/phase1_linux.sonar_fields.txt").decode().split("\n", 1)[0].split("|")
TABLES = [
    *names("sacct/*sonar_fields*.txt"),
    *names("sacct/*all_fields*.txt"),
    *names("sacct/*long_l.txt"),
    *names("sacct/*jobs_X.txt"),
    *names("sacct/*epoch*.txt"),
    *names("sacct/*oslo*.txt"),
    *names("sacct/*state*.txt"),
    *names("sacct/tz_width40.txt"),
    *names("snapshots/sacct*"),
    *names("sstat/*"),
]


def read(payload: bytes, **options: Any) -> ParsedOutput[SacctRow]:
    return SacctReader(**options).read(payload)


def rows(name: str) -> list[SacctRow]:
    payload = captured(name)
    if name.endswith("_us.txt"):
        reading = read(payload, columns=SONAR, delimiter="\x1f", zone=UTC)
    else:
        reading = read(payload, zone=UTC)
    assert reading.rejected == []
    return reading.records


@pytest.mark.parametrize("name", TABLES)
def test_sacct_reader_reads_all_captured_rows(name: str) -> None:
    payload = captured(name).decode()
    delimiter, columns = ("\x1f", SONAR) if name.endswith("_us.txt") else ("|", None)
    header, _, rest = ("", "", payload) if columns else payload.partition("\n")
    each = len(columns or header.split(delimiter)) - 1
    count, left = divmod(rest.count(delimiter), each)
    assert left == 0
    assert len(rows(name)) == count


@pytest.mark.parametrize("name", [n for n in TABLES if re.search(r"(sonar|all)_fields[^_]*$", n)])
def test_sacct_reader_preserves_sums_of_cpu_time(name: str) -> None:
    payload = captured(name)
    found = rows(name)
    for column in ("UserCPU", "SystemCPU"):
        expected = sum(raw_milliseconds(cell) for cell in raw_cells(payload, column))
        field = {"UserCPU": "user_cpu", "SystemCPU": "system_cpu"}[column]
        assert round(sum(getattr(row, field) for row in found) * 1000) == expected > 0


def test_sacct_cpu_times_of_steps_add_up_to_job() -> None:
    found = rows("sacct/phase1_linux.sonar_fields.txt")
    for job in (row for row in found if not row.is_step):
        steps = [row for row in found if row.is_step and row.id.job == job.id.job]
        total = sum(step.user_cpu or 0 for step in steps)
        assert job.user_cpu == pytest.approx(total, abs=0.001 * len(steps))


def test_sacct_reader_reads_all_columns_of_job() -> None:
    found = rows("sacct/phase1_linux.all_fields.txt")
    job = next(row for row in found if str(row.id) == "3")
    step = next(row for row in found if str(row.id) == "3.0")
    assert (job.user, job.uid, job.account) == ("alice", 2001, "physics")
    assert (job.state, job.exit_code, job.other["derivedexitcode"]) == ("COMPLETED", 0, "7:0")
    assert (job.submit, job.elapsed, job.time_limit) == (1795170814 * SECOND, 55, 600)
    assert (job.node_list, job.alloc_nodes, job.alloc_cpus) == ("c[1-2]", 2, 4)
    assert (job.req_mem, job.requested_memory) == (1600 * 2**20, 1600 * 2**20)
    assert (job.consumed_energy, job.other["comment"]) == (17797, "multi-step-two-node")
    assert (job.other["dbindex"], job.other["flags"]) == ("5", "SchedBackfill,StartRecieved")
    assert (step.ave_rss, step.max_rss) == (93585 * 1024, 139096 * 1024)
    assert (step.ave_cpu, step.min_cpu, step.ntasks) == (3, 2, 4)
    assert step.other["tresusageinmax"]
    assert step.layout == "Block"


def test_sacct_reader_reads_sizes_with_and_without_noconvert_alike() -> None:
    converted = rows("sacct/phase1_linux.sonar_fields.txt")
    plain = rows("sacct/phase1_linux.sonar_fields_noconvert.txt")
    separated = rows("sacct/phase1_linux.sonar_fields_noconvert_us.txt")
    assert converted == plain == separated


def test_sacct_reader_reads_array_and_het_jobs() -> None:
    found = {row.id.raw: row.id for row in rows("sacct/phase1_linux.sonar_fields.txt")}
    assert found["14"] == SlurmId(14, array_job=13, array_task=1)
    assert found["13"] == SlurmId(13, array_job=13, array_task=6)
    assert found["18.0"] == SlurmId(18, "0", het_job=17, het_offset=1)
    assert found["17.batch"] == SlurmId(17, "batch", het_job=17, het_offset=0)


def test_sacct_reader_reads_final_states_and_canceller() -> None:
    found = {str(row.id): row for row in rows("sacct/phase1_linux.sonar_fields.txt")}
    states = {row.state for row in found.values()}
    assert {"NODE_FAIL", "DEADLINE", "TIMEOUT", "CANCELLED", "FAILED"} <= states
    assert (found["5"].exit_code, found["5"].exit_signal) == (0, 11)
    payload = b"JobIDRaw|State\n21|CANCELLED by 2001\n"
    assert read(payload).records == [SacctRow(SlurmId(21), state="CANCELLED", cancelled_by=2001)]


def test_sacct_reader_returns_row_per_run_of_requeued_job() -> None:
    """DBIndex distinguishes them."""
    runs = [r for r in rows("sacct/phase1_linux.all_fields_D.txt") if str(r.id) == "22"]
    assert [run.state for run in runs] == ["REQUEUED", "COMPLETED"]
    assert len({run.other["dbindex"] for run in runs}) == 2


def test_sacct_reader_keeps_multiline_script_in_row() -> None:
    step = next(r for r in rows("sacct/phase1_linux.all_fields.txt") if str(r.id) == "19.0")
    line = step.other["submitline"]
    assert line.count("\n") == 5
    assert line.startswith("srun python3 -c")
    assert (step.total_cpu, step.state, step.exit_signal) == (0.171, "CANCELLED", 9)


def test_sacct_reader_reads_local_and_epoch_times_alike() -> None:
    epoch = read(captured("sacct/phase1_linux.epoch_time_format.txt")).records
    oslo = read(captured("sacct/phase1_linux.oslo_tz_standard.txt"), zone=OSLO).records
    utc = rows("sacct/phase1_linux.sonar_fields.txt")
    times = [(row.id.raw, row.submit, row.start, row.end) for row in epoch]
    assert times == [(row.id.raw, row.submit, row.start, row.end) for row in oslo]
    assert times == [(row.id.raw, row.submit, row.start, row.end) for row in utc]


def test_sacct_reader_rejects_default_table() -> None:
    """Its cells are truncated to the width of their columns."""
    with pytest.raises(DataError, match="no delimiter between the names"):
        read(captured("sacct/phase1_linux.default_table.txt"))


def test_sacct_reader_reads_sstat() -> None:
    """Running steps; file volumes are in bytes."""
    first, second = rows("sstat/sstat_running_all.txt")
    assert first.id == SlurmId(35, "batch")
    assert (second.max_rss, second.ntasks) == (78168 * 1024, 2)
    assert second.other["maxdiskread"] == "17833762"
    assert second.state is None


HEADER = b"JobIDRaw|JobName|State|Submit|Start|End|ElapsedRaw|Suspended\n"


def oslo(text: str, fold: int = 0) -> int:
    time = datetime.fromisoformat(text).replace(tzinfo=OSLO, fold=fold)
    return int(time.timestamp()) * SECOND


START, END = "2026-10-25T02:30:00", "2026-10-25T02:50:00"


@pytest.mark.parametrize(
    ("start", "end", "elapsed", "suspended", "folds"),
    [
        (START, END, 20, 0, (0, 0)),
        (START, END, 80, 0, (0, 1)),
        (START, END, 70, 10, (0, 1)),
        (START, "2026-10-25T03:10:00", 40, 0, (1, 0)),
        (START, "2026-10-25T03:10:00", 100, 0, (0, 0)),
        ("2026-10-25T01:50:00", START, 40, 0, (0, 0)),
        ("2026-10-25T01:50:00", START, 100, 0, (0, 1)),
        (END, START, 40, 0, (0, 1)),
    ],
)
def test_sacct_reader_resolves_ambiguous_local_times(
    start: str, end: str, elapsed: int, suspended: int, folds: tuple[int, int]
) -> None:
    """By the elapsed time, else by the order of the times."""
    cells = ("1", "a", "COMPLETED", start, start, end, str(60 * elapsed), f"00:{suspended:02}:00")
    reading = read(HEADER + "|".join(cells).encode() + b"\n", zone=OSLO)
    assert reading.rejected == []
    (row,) = reading.records
    assert (row.start, row.end) == (oslo(start, folds[0]), oslo(end, folds[1]))
    assert row.submit is not None
    assert row.submit <= oslo(start, folds[0])


def test_sacct_times_in_wrong_order_stay_unchanged() -> None:
    """Clocks of two machines may differ; the row is kept."""
    row = SacctRow(SlurmId(1), start=2 * SECOND, end=SECOND)
    assert with_order(row, {"start": 3 * SECOND}) == row


def test_sacct_reader_reads_memory_scopes_of_old_versions() -> None:
    payload = b"JobID|ReqMem|ReqCPUS|ReqNodes\n1|300Mc|4|2\n2|2Gn|4|2\n3|600M|4|2\n4||4|2\n"
    found = read(payload).records
    assert [(row.req_mem, row.req_mem_of) for row in found] == [
        (300 * 2**20, "cpu"),
        (2 * 2**30, "node"),
        (600 * 2**20, "job"),
        (None, None),
    ]
    assert [row.requested_memory for row in found] == [1200 * 2**20, 4 * 2**30, 600 * 2**20, None]


def test_sacct_reader_reads_time_limits() -> None:
    payload = b"JobID|TimelimitRaw\n1|UNLIMITED\n2|Partition_Limit\n3|30\n4|\n"
    assert [row.time_limit for row in read(payload).records] == [math.inf, None, 1800, None]
    payload = b"JobID|Timelimit\n1|UNLIMITED\n2|1-00:00:00\n"
    assert [row.time_limit for row in read(payload).records] == [math.inf, 86400]


def test_sacct_reader_accepts_any_delimiter() -> None:
    assert read(b"JobID;JobName\n3;a|b\n").records == [SacctRow(SlurmId(3), job_name="a|b")]
    payload = b"JobID::JobName\n3::a:b\n"
    assert read(payload, delimiter="::").records == [SacctRow(SlurmId(3), job_name="a:b")]
    trailing = b"JobID|JobName|\n3|a|\n"  # sacct -p
    assert read(trailing).records == [SacctRow(SlurmId(3), job_name="a")]


@pytest.mark.parametrize("name", ["phase1_linux.all_fields_D.txt", "phase1_linux.json"])
def test_sacct_stream_reader_detects_format(name: str) -> None:
    payload = captured(f"sacct/{name}")
    expected = read_json(payload) if "json" in name else read(payload, zone=UTC)
    for start in (b"", BOM_UTF8):  # as editors write it
        parts = read_sacct(io.BytesIO(start + payload), zone=UTC)
        assert [row for part in parts for row in part.records] == expected.records


def test_sacct_fields_cover_row() -> None:
    fields = {field.name for field in sacct_fields(TimeReader())}
    assert fields == {*SacctRow.__struct_fields__} - {"allocation", "oversubscribe", "other"}


@pytest.mark.parametrize("name", names("sacct/*all_fields.txt"))
def test_sacct_reader_keeps_other_cells_unchanged(name: str) -> None:
    payload = captured(name)
    kept = {column for row in rows(name) for column in row.other}
    for column in payload.decode().partition("\n")[0].split("|")[1:-1]:
        if column.lower() in kept:
            found = [row.other.get(column.lower(), "") for row in rows(name)]
            assert found == raw_cells(payload, column)
    assert {"eligible", "maxrssnode", "submitline", "workdir"} <= kept


CELLS = st.one_of(
    st.sampled_from(
        ["", "3", "3.0", "UNLIMITED", "00:14.493", "2026-10-25T02:30:00", "0:11", "1K"]
    ),
    st.text(max_size=8),
)


@given(
    st.lists(st.sampled_from([*SONAR, "Comment", "x"]), min_size=1, max_size=6, unique=True),
    st.lists(st.lists(CELLS, min_size=1, max_size=8), max_size=5),
)
def test_sacct_reader_reads_or_rejects_any_cells(
    columns: list[str], table: list[list[str]]
) -> None:
    payload = "".join("|".join(cells) + "\n" for cells in table).encode("utf-8", "surrogatepass")
    reading = read(payload, columns=[*columns, "JobID"], zone=OSLO)
    for row in reading.records:
        assert isinstance(row.id, SlurmId)
        msgspec.json.encode(row)
    assert all(bad.reason for bad in reading.rejected)
