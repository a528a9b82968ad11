"""``Key=value`` records: values with blanks, with newlines, and those that look like keys."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import DataError
from ccpipe.formats.slurm.text import key_values
from ccpipe.formats.slurm.text.key_values import (
    JOB,
    NODE,
    PARTITION,
    RecordFormat,
    parse,
    read_records,
)

LINES = "JobId=3 JobName={}\n   UserId=a(1) Reason=None\n   Command=x\n   WorkDir=/y"
ONE_LINE = "JobId=3 JobName={} UserId=a(1) Reason=None Command=x WorkDir=/y"


@pytest.mark.parametrize("form", [LINES, ONE_LINE])
@pytest.mark.parametrize("name", ["", "a", "a b", "a=b", "a b=c D=e", "line1\nline2\ttab", "é|;,"])
def test_names_are_what_users_wrote(form: str, name: str) -> None:
    """On several lines or on one."""
    found = parse(form.format(name), JOB).values
    assert found == {
        "JobId": "3", "JobName": name, "UserId": "a(1)", "Reason": "None", "Command": "x",
        "WorkDir": "/y",
    }  # fmt: skip


def test_a_name_that_poses_as_another_user() -> None:
    """On several lines it is only a name; on one line it is ambiguous, and rejected."""
    name = "x UserId=root(0)"
    assert parse(LINES.format(name), JOB).values["UserId"] == "a(1)"
    with pytest.raises(DataError, match="UserId stands twice"):
        parse(ONE_LINE.format(name), JOB)
    with pytest.raises(DataError, match="UserId stands twice"):
        parse(LINES.format("x\n   UserId=root(0)"), JOB)


def test_groups_of_nodes() -> None:
    """``show job -d`` has a line for each; with ``-o`` they follow each other."""
    lines = "JobId=3\n   JOB_GRES=gpu:2\n     Nodes=c1 CPU_IDs=0-1 Mem=8 GRES=gpu:1(IDX:0)\n"
    lines += "     Nodes=c2 CPU_IDs=3 Mem=8 GRES=\n   MinCPUsNode=1"
    expected = [
        {"Nodes": "c1", "CPU_IDs": "0-1", "Mem": "8", "GRES": "gpu:1(IDX:0)"},
        {"Nodes": "c2", "CPU_IDs": "3", "Mem": "8", "GRES": ""},
    ]
    assert parse(lines, JOB).groups == expected
    assert parse(" ".join(lines.split()), JOB).groups == expected
    assert parse(lines, JOB).values["MinCPUsNode"] == "1"


def test_values_of_nodes() -> None:
    """The system and the reason hold blanks; empty values are empty."""
    record = "NodeName=c1 Arch=x86_64\n   OS=Linux 6.1 #1 SMP @0 \n   AllocTRES=\n   Reason=a b=c"
    found = parse(record, NODE).values
    assert (found["OS"], found["AllocTRES"], found["Reason"]) == (
        "Linux 6.1 #1 SMP @0",
        "",
        "a b=c",
    )


def names(
    payload: bytes, kind: RecordFormat = PARTITION
) -> tuple[list[str], list[tuple[int, str]]]:
    """Return the first values of records, and what was rejected."""
    reading = read_records(payload, kind, lambda record: record.get(kind.first))
    return reading.records, [(bad.line, bad.reason) for bad in reading.rejected]


def test_records_one_after_the_other() -> None:
    """With empty lines between them or without; with their line numbers where they are bad."""
    payload = b"PartitionName=a X=1\n\nPartitionName=b X=1 X=2\nPartitionName=c\n   X=1\n\n"
    found, rejected = names(payload)
    assert found == ["a", "c"]
    assert rejected == [(3, "X stands twice, so that one of them is part of a text")]


def test_no_records() -> None:
    """It says so in words; other words are rejected."""
    assert names(b"No jobs in the system\n", JOB) == ([], [])
    assert names(b"") == ([], [])
    _, rejected = names(b"slurm_load_partitions error: timed out\n")
    assert rejected == [(1, "no record of scontrol: it does not begin with PartitionName=")]


def test_a_record_without_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is rejected, and only its beginning is kept."""
    monkeypatch.setattr(key_values, "MAX_RECORD", 50)
    reading = read_records(b"JobId=3 JobName=" + b"x" * 100, JOB, lambda record: record)
    assert [(bad.reason, len(bad.original)) for bad in reading.rejected] == [
        ("a record of more than 50 bytes", 50)
    ]


def test_bytes_that_are_not_utf8() -> None:
    """They are replaced in records and kept where one is rejected."""
    reading = read_records(b"JobId=3 JobName=caf\xe9", JOB, lambda record: record.get("JobName"))
    assert reading.records == ["caf\N{REPLACEMENT CHARACTER}"]
    reading = read_records(b"JobId=3 A=\xe9 A=1", JOB, lambda record: record.get("A"))
    assert reading.rejected[0].original == b"JobId=3 A=\xe9 A=1"


TEXTS = st.text(st.characters(exclude_characters="=\n", exclude_categories=["Cs"]), max_size=20)


@given(TEXTS.map(str.strip), TEXTS.map(str.strip))
def test_texts_come_back(name: str, comment: str) -> None:
    """Whatever they hold, but for keys and newlines, which are tested above."""
    record = f"JobId=3 JobName={name}\n   UserId=a(1)\n   Comment={comment}\n   StdIn=/dev/null"
    assert parse(record, JOB).values["JobName"] == name
    assert parse(record, JOB).values["Comment"] == comment
    one_line = f"JobId=3 JobName={name} UserId=a(1) Comment={comment} StdIn=/dev/null"
    assert parse(one_line, JOB).values["JobName"] == name
    assert parse(one_line, JOB).values["Comment"] == comment


@given(st.binary(max_size=200), st.sampled_from([JOB, NODE, PARTITION]))
def test_any_bytes_are_records_or_rejected(payload: bytes, kind: RecordFormat) -> None:
    """No bytes end in an error."""
    for prefix in (b"", f"{kind.first}=1 ".encode()):
        reading = read_records(prefix + payload, kind, lambda record: record)
        assert all(bad.reason for bad in reading.rejected)
