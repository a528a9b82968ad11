"""scontrol's text: every captured job, on several lines or one, names that look like keys."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import DataError
from ccpipe.formats.slurm import text
from ccpipe.formats.slurm.records import Allocation, SlurmId
from ccpipe.formats.slurm.text import parse_record, read_scontrol
from ccpipe.formats.slurm.values import SECOND
from tests.formats.slurm.captured import UTC, captured, names

JOBS = [name for name in names("scontrol/*job*.txt") if "oneline" not in name]
LINES = "JobId=3 JobName={}\n   UserId=a(1) Reason=None\n   Command=x\n   WorkDir=/y"


@pytest.mark.parametrize("name", JOBS)
def test_scontrol_reader_reads_all_captured_jobs(name: str) -> None:
    payload = captured(name)
    reading = read_scontrol(payload, zone=UTC)
    assert reading.rejected == []
    raw = payload.decode()
    assert [str(job.id.job) for job in reading.records] == re.findall(
        r"^JobId=(\d+)", raw, re.MULTILINE
    )
    assert [job.state for job in reading.records] == re.findall(r"JobState=(\w+)", raw)
    numbers = [int(number) for number in re.findall(r" NumNodes=(\d+)", f" {raw}")]
    assert [job.nodes for job in reading.records if job.nodes] == [n for n in numbers if n]


@pytest.mark.parametrize("phase", ["phase1_linux", "phase3_pss_influx"])
def test_scontrol_reader_rejects_records_on_one_line(phase: str) -> None:
    """A name cannot be distinguished from the keys after it."""
    reading = read_scontrol(captured(f"scontrol/{phase}.show_job_oneline.txt"), zone=UTC)
    assert reading.records == []
    assert all("on one line" in bad.reason for bad in reading.rejected)


def test_scontrol_reader_reads_allocation_of_running_job() -> None:
    (job,) = read_scontrol(captured("scontrol/show_job_d_running.txt"), zone=UTC).records
    assert (job.id, job.state, job.start) == (SlurmId(35), "RUNNING", 1795171041 * SECOND)
    assert (job.nodes, job.cpus, job.node_list) == (1, 2, "c1")
    assert (job.memory_per_cpu, job.memory_per_node) == (300 * 2**20, None)
    assert (job.alloc_tres, job.req_tres) == ("cpu=2,mem=600M,node=1,billing=2", None)
    assert job.allocation == (Allocation(node_list="c1", cpu_ids="1-2", memory=600 * 2**20),)
    assert job.oversubscribe == "OK"


def test_scontrol_reader_reads_gpus_per_node() -> None:
    payload = (
        b"JobId=3 JobName=a\n   JobState=RUNNING\n   NodeList=g[1-2]\n   JOB_GRES=gpu:a100:3\n"
    )
    payload += b"     Nodes=g1 CPU_IDs=0-3 Mem=0 GRES=gpu:a100:2(IDX:0-1)\n"
    payload += b"     Nodes=g2 CPU_IDs=0,2 Mem=0 GRES=gpu:a100:1(IDX:3)\n"
    (job,) = read_scontrol(payload).records
    assert [(part.node_list, part.cpu_ids, part.gres) for part in job.allocation] == [
        ("g1", "0-3", "gpu:a100:2(IDX:0-1)"),
        ("g2", "0,2", "gpu:a100:1(IDX:3)"),
    ]


ADDRESSES = "00000000:49:00.0,0000:4a:00.0"


@pytest.mark.parametrize(
    ("comments", "addresses"),
    [
        (f"   Comment={ADDRESSES}\n", ("00000000:49:00.0", "0000:4a:00.0")),
        (f"   AdminComment=0001:C1:00.1\n   Comment={ADDRESSES}\n", ("0001:C1:00.1",)),
        ("   AdminComment=urgent\n   Comment=0001:C1:00.1 \n", ("0001:C1:00.1",)),
        ("   Comment=0001:C1:00.1,0001:C1:00.1\n", ("0001:C1:00.1",)),
        (f"   Comment=gpus {ADDRESSES}\n", ()),
        (f"   Comment={ADDRESSES},\n", ()),
        ("   Comment=49:00.0\n", ()),
        ("   Comment=000000000:49:00.0\n", ()),
        (f"   Comment={','.join(['0001:C1:00.1'] * 65)}\n", ()),
        (f"   SystemComment={ADDRESSES}\n   Extra={ADDRESSES}\n", ()),
        ("   Comment=\n", ()),
        ("", ()),
    ],
)
def test_scontrol_reader_reads_gpus_from_comment_of_addresses(
    comments: str, addresses: tuple[str, ...]
) -> None:
    """The administrators' comment takes precedence over the user's."""
    record = "JobId=3 JobName=a\n   JobState=RUNNING\n     Nodes=g1 CPU_IDs=0 Mem=0 GRES=\n"
    (job,) = read_scontrol(f"{record}{comments}".encode()).records
    assert job.allocation[0].comment_gpus == addresses


def test_scontrol_reader_reads_requested_and_allocated_tres() -> None:
    """Later versions print ``ReqTRES`` and ``AllocTRES`` instead of ``TRES``."""
    payload = b"JobId=3 JobName=a\n   JobState=PENDING Reason=Priority FailedNode=c1\n"
    payload += b"   ReqTRES=cpu=4\n   AllocTRES=(null)\n"
    (job,) = read_scontrol(payload).records
    assert (job.req_tres, job.alloc_tres) == ("cpu=4", None)


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (b"JobId=3 JobName=a", "no JobState: record truncated"),
        (b"JobId=x JobName=a\n   JobState=RUNNING", "JobId: not a whole number: 'x'"),
        (b"JobId=3 JobState=RUNNING NumCPUs=few", "NumCPUs: not an amount: 'few'"),
        (b"JobId=3 JobState=RUNNING StartTime=2026-11-20T10:32:28", "without a zone to read it in"),
        (b"JobId=3 JobState=RUNNING JobState=FAILED", "JobState occurs twice"),
        (b"JobId=3 JobState=RUNNING Nodes=c1 Mem=x", "not an amount: 'x'"),
    ],
)
def test_scontrol_reader_rejects_bad_job_only(record: bytes, reason: str) -> None:
    reading = read_scontrol(record + b"\n\nJobId=4 JobName=b\n   JobState=RUNNING\n")
    assert [job.id for job in reading.records] == [SlurmId(4)]
    assert reason in reading.rejected[0].reason


@pytest.mark.parametrize("name", ["", "a", "a b", "a=b", "a b=c D=e", "line1\nline2\ttab", "é|;,"])
def test_scontrol_reader_keeps_names_unchanged(name: str) -> None:
    found = parse_record(LINES.format(name)).values
    assert found == {
        "JobId": "3", "JobName": name, "UserId": "a(1)", "Reason": "None", "Command": "x",
        "WorkDir": "/y",
    }  # fmt: skip


def test_scontrol_reader_is_not_fooled_by_name_like_key() -> None:
    assert parse_record(LINES.format("x UserId=root(0)")).values["UserId"] == "a(1)"
    with pytest.raises(DataError, match="UserId occurs twice"):
        parse_record(LINES.format("x\n   UserId=root(0)"))


def test_scontrol_reader_reports_line_of_rejected_record() -> None:
    payload = b"JobId=1 JobState=RUNNING\n\nJobId=2 X=1 X=2\nJobId=3\n   JobState=RUNNING\n\n"
    reading = read_scontrol(payload)
    assert [job.id.job for job in reading.records] == [1, 3]
    assert [(bad.line, bad.reason) for bad in reading.rejected] == [
        (3, "X occurs twice, so one of them is part of a text")
    ]


def test_scontrol_reader_returns_nothing_without_records() -> None:
    for payload in (b"No jobs in the system\n", b""):
        reading = read_scontrol(payload)
        assert (reading.records, reading.rejected) == ([], [])
    (bad,) = read_scontrol(b"slurm_load_jobs error: timed out\n").rejected
    assert (bad.line, bad.reason) == (1, "not a record of scontrol (expected JobId=…)")


def test_scontrol_reader_rejects_long_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "MAX_RECORD", 50)
    reading = read_scontrol(b"JobId=3 JobName=" + b"x" * 100)
    assert [(bad.reason, len(bad.original)) for bad in reading.rejected] == [
        ("record of more than 50 bytes", 50)
    ]


def test_scontrol_reader_keeps_invalid_utf8_of_rejected_record() -> None:
    reading = read_scontrol(b"JobId=3 JobState=RUNNING ReqTRES=caf\xe9")
    assert reading.records[0].req_tres == "caf\N{REPLACEMENT CHARACTER}"
    reading = read_scontrol(b"JobId=3 A=\xe9 A=1")
    assert reading.rejected[0].original == b"JobId=3 A=\xe9 A=1"


TEXTS = st.text(st.characters(exclude_characters="=\n", exclude_categories=["Cs"]), max_size=20)


@given(TEXTS.map(str.strip), TEXTS.map(str.strip))
def test_scontrol_reader_reads_any_texts_as_written(name: str, comment: str) -> None:
    record = f"JobId=3 JobName={name}\n   UserId=a(1)\n   Comment={comment}\n   StdIn=/dev/null"
    values = parse_record(record).values
    assert (values["JobName"], values["Comment"]) == (name, comment)


KEYS = st.sampled_from(["JobState", "UserId", "StartTime", "NumNodes", "NumCPUs", "TRES", "Nodes",
                        "CPU_IDs", "Mem", "GRES", "MinMemoryCPU", "NodeList"])  # fmt: skip
VALUES = st.sampled_from(["RUNNING", "(null)", "N/A", "3", "0-9", "c1"]) | st.text(max_size=6)


@given(st.dictionaries(KEYS, VALUES))
def test_scontrol_reader_reads_or_rejects_any_values(values: dict[str, str]) -> None:
    pairs = "\n   ".join(f"{key}={value}" for key, value in values.items())
    payload = f"JobId=3\n   {pairs}\n".encode("utf-8", "surrogatepass")
    assert all(bad.reason for bad in read_scontrol(payload, zone=UTC).rejected)


@given(st.binary(max_size=200))
def test_scontrol_reader_reads_or_rejects_any_bytes(payload: bytes) -> None:
    for prefix in (b"", b"JobId=1 "):
        assert all(bad.reason for bad in read_scontrol(prefix + payload, zone=UTC).rejected)
