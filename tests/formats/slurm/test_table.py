"""Rows of unquoted cells are found despite delimiters and newlines inside texts."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import DataError
from ccpipe.formats.slurm import table
from ccpipe.formats.slurm.table import Header, RowSplitter, align, split_header, unique

FITS = {"jobid": int, "elapsed": int, "end": int}
HEADER = Header(("jobid", "jobname", "user", "elapsed"), "|", frozenset({"jobname"}), FITS)
LAST = Header(("jobid", "elapsed", "jobname"), "|", frozenset({"jobname"}), FITS)
NEIGHBOURS = Header(
    ("jobid", "jobname", "comment", "elapsed"), "|", frozenset({"jobname", "comment"}), FITS
)
APART = Header(
    ("jobid", "jobname", "user", "comment", "elapsed"), "|", frozenset({"jobname", "comment"}), FITS
)


def rows(payload: str, header: Header) -> list[tuple[str, ...]]:
    block = RowSplitter(header).feed(payload.encode(), is_last=True)
    assert block.rejected == []
    return list(zip(*block.columns, strict=True))


def test_splitter_accepts_last_line_without_end() -> None:
    """A program may be interrupted there."""
    assert rows("1|a|u|0\n2|b|v|5", HEADER) == rows("1|a|u|0\n2|b|v|5\n", HEADER)


def test_splitter_keeps_newlines_in_last_column() -> None:
    found = rows("1|0|a\nb\n\nc\n2|5|d\n", LAST)
    assert found == [("1", "0", "a\nb\n\nc"), ("2", "5", "d")]


def test_splitter_assigns_excess_delimiters_to_text() -> None:
    """If the adjacent cells are valid for their columns."""
    assert rows("1|a|b|c|u|0\n", HEADER) == [("1", "a|b|c", "u", "0")]
    assert rows("1|0|a|b|\n", LAST) == [("1", "0", "a|b|")]


def test_splitter_does_not_guess_boundary_of_adjacent_texts() -> None:
    """The name gets the whole text, the comment is empty."""
    assert rows("1|a|b|c|0\n", NEIGHBOURS) == [("1", "a|b|c", "", "0")]


def test_splitter_rejects_row_with_ambiguous_column_between_texts() -> None:
    """The reason names the columns."""
    block = RowSplitter(APART).feed(b"1|a|b|c|d|0\n2|a|u|c|0\n", is_last=True)
    assert list(zip(*block.columns, strict=True)) == [("2", "a", "u", "c", "0")]
    (rejected,) = block.rejected
    assert rejected.line == 1
    assert "more than one of the columns jobname, user, comment" in rejected.reason
    assert rejected.original == b"1|a|b|c|d|0"


def test_splitter_separates_texts_by_valid_cell_between() -> None:
    header = dataclasses.replace(APART, fits={**FITS, "user": int})
    assert rows("1|a|b|7|c|0\n", header) == [("1", "a|b", "7", "c", "0")]


def test_splitter_rejects_truncated_row_only() -> None:
    block = RowSplitter(HEADER).feed(b"1|a\n2|b|v|5\n", is_last=True)
    assert list(zip(*block.columns, strict=True)) == [("2", "b", "v", "5")]
    assert [(bad.line, bad.original) for bad in block.rejected] == [(1, b"1|a")]
    assert block.rejected[0].reason == "expected 4 fields, got 2"


def test_splitter_rejects_message_between_rows_only() -> None:
    """If the last column is not text, the row before the message is complete."""
    payload = b"1|a|u|0\nsacct: error: slurmdbd is busy\n2|b|v|5\n"
    block = RowSplitter(HEADER).feed(payload, is_last=True)
    assert [row[0] for row in zip(*block.columns, strict=True)] == ["1", "2"]
    assert [(bad.line, bad.reason) for bad in block.rejected] == [(2, "expected 4 fields, got 1")]
    assert list(block.lines) == [1, 3]


def test_align_rejects_excess_delimiters_without_text() -> None:
    with pytest.raises(DataError, match="no text column contains the excess delimiters"):
        align("1|a|b|u|x", HEADER)


def test_splitter_rejects_oversized_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "MAX_RECORD", 50)
    splitter = RowSplitter(HEADER)
    rejected = []
    for _ in range(10):
        rejected += splitter.feed(b"x" * 20).rejected
    assert [(bad.line, len(bad.original)) for bad in rejected] == [(1, 50)]
    block = splitter.feed(b"xx\n2|b|v|5\n3|", is_last=False)
    assert block.rejected == []
    block = splitter.feed(b"c|v|5\n", is_last=True)
    assert list(zip(*block.columns, strict=True)) == [("2", "b", "v", "5"), ("3", "c", "v", "5")]
    assert list(block.lines) == [2, 3]
    block = RowSplitter(HEADER).feed(b"1|a\n" + b"b\n" * 100 + b"2|b|v|5\n", is_last=True)
    assert list(zip(*block.columns, strict=True)) == [("2", "b", "v", "5")]
    assert any("more than 50 bytes" in bad.reason for bad in block.rejected)


def test_align_rejects_too_many_delimiters() -> None:
    with pytest.raises(DataError, match="more delimiters than the header has"):
        align("|" * 5000, HEADER)


def test_splitter_keeps_invalid_utf8() -> None:
    block = RowSplitter(HEADER).feed(b"1|a\xff|u|0\n2|\xff\n", is_last=True)
    assert not block.is_utf8
    assert block.rejected[0].original == b"2|\xff"


WIDE = Header(
    ("jobid", "jobname", "user", "account", "state", "elapsed"), "|", frozenset({"jobname"}), FITS
)
NAMES = st.text(st.sampled_from("ab|\n c"), max_size=8).filter(
    lambda name: name.strip("\n") == name and name.count("|") < WIDE.last - 1
)
"""Few enough delimiters that no part of the row looks like a complete row."""
ROWS = st.lists(st.tuples(st.integers(0, 999), NAMES, st.integers(0, 999)), max_size=8)


@given(ROWS, st.integers(1, 40))
def test_splitter_finds_any_names_in_any_chunks(
    made: list[tuple[int, str, int]], size: int
) -> None:
    payload = "".join(f"{job}|{name}|u|a|s|{elapsed}\n" for job, name, elapsed in made).encode()
    splitter = RowSplitter(WIDE)
    found: list[tuple[str, ...]] = []
    chunks = [payload[start : start + size] for start in range(0, len(payload), size)]
    for chunk in (*chunks, b""):
        block = splitter.feed(chunk, is_last=not chunk)
        assert block.rejected == []
        found += zip(*block.columns, strict=True)
    assert found == [(str(job), name, "u", "a", "s", str(elapsed)) for job, name, elapsed in made]


@given(st.lists(st.binary(max_size=60), max_size=6), st.sampled_from([HEADER, LAST, APART]))
def test_splitter_returns_or_rejects_any_bytes(chunks: list[bytes], header: Header) -> None:
    splitter = RowSplitter(header)
    blocks = [splitter.feed(chunk) for chunk in chunks]
    blocks.append(splitter.feed(b"", is_last=True))
    whole = RowSplitter(header).feed(b"".join(chunks), is_last=True)
    assert [row for block in blocks for row in zip(*block.columns, strict=True)] == list(
        zip(*whole.columns, strict=True)
    )
    assert [bad for block in blocks for bad in block.rejected] == whole.rejected
    kept = "".join(header.delimiter.join(row) for row in zip(*whole.columns, strict=True))
    lost = kept.encode("utf-8", "surrogateescape") + b"".join(b.original for b in whole.rejected)
    assert sorted(lost.replace(b"\n", b"")) == sorted(b"".join(chunks).replace(b"\n", b""))


def test_header_determines_delimiter() -> None:
    assert split_header("JobIDRaw|State") == (("jobidraw", "state"), "|")
    assert split_header("JobIDRaw;State") == (("jobidraw", "state"), ";")
    assert split_header("JobIDRaw\x1fState") == (("jobidraw", "state"), "\x1f")
    assert split_header("JobIDRaw@@State", "@@") == (("jobidraw", "state"), "@@")
    assert split_header("CPUS(A/I/O/T) |S:C:T |NODELIST(REASON) ")[1] == "|"
    assert split_header("JobID") == (("jobid",), "|")
    assert unique(["jobid", "", "jobid"]) == ("jobid", "", "jobid#2")


def test_header_with_too_many_names_is_rejected() -> None:
    with pytest.raises(DataError, match="2001 columns"):
        split_header("|" * 2000)
