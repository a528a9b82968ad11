"""Series as CSV and as records."""

import csv
import io
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import DataError
from ccpipe.formats.slurm_metrics import METRICS
from ccpipe.formats.slurm_profile.extract import (
    Level,
    all_fields,
    common_fields,
    extract_csv,
    extract_records,
    parse_level,
    samples,
)
from ccpipe.formats.slurm_profile.reader import Profile, open_profile
from ccpipe.formats.slurm_profile.table import NodeStep, Table
from tests.formats.slurm_profile.samples import DATA, NODE_STEPS, START, named, table_of

CSV = sorted((DATA / "csv").glob("*.E.*.csv"))
CHOICES = {
    "c2": lambda part: part.node == "c2",
    "nosuch": lambda part: False,
    "step0": lambda part: part.step in ("0", "batch"),  # sh5util takes "batch" for 0
    "step1": lambda part: part.step == "1",
}


def of_series(profile: Profile, series: str, choice: str = "") -> list[Table]:
    chosen: Callable[[NodeStep], bool] = CHOICES.get(choice, lambda _: True)
    return [t for t in profile.tables if t.series == series and chosen(t.node_step)]


def text(tables: list[Table], level: Level = Level.NODE_TIME_SERIES, **options: bool) -> str:
    return b"".join(extract_csv(tables, level, **options)).decode()


@pytest.mark.parametrize("path", CSV, ids=named(CSV))
def test_csv_equals_output_of_sh5util(path: Path) -> None:
    job, _, series, what = path.name.removesuffix(".csv").split(".")
    level = Level.NODE_TOTALS if what == "totals" else Level.NODE_TIME_SERIES
    with open_profile(DATA / "merged" / f"{job}.h5") as profile:
        tables = of_series(profile, series, what)
        assert b"".join(extract_csv(tables, level)) == path.read_bytes()


def test_extract_skips_step_without_series() -> None:
    """sh5util fails; steps 4 and 5 of this job ended before a task was polled."""
    with open_profile(DATA / "merged" / "job_3.h5") as profile:
        lines = text(of_series(profile, "Tasks")).splitlines()
    assert {line.split(",")[0] for line in lines[1:]} == {"0", "1", "2", "3", "batch"}


def test_extract_finds_fields_by_name_in_any_order() -> None:
    """Slurm 23.02 moved fields; sh5util prints them under the titles of the first table."""
    old = table_of("Tasks", {"CPUTime": [0.5], "RSS": [7], "Pages": [1]})
    new = table_of("Tasks", {"RSS": [8], "GPUMemMB": [5], "CPUTime": [1.5]}, node="c2")
    assert common_fields([old, new]) == ["ElapsedTime", "EpochTime", "CPUTime", "RSS"]
    assert all_fields([old, new])[4:] == ["Pages", "GPUMemMB"]
    assert [line.split(",", 5)[5] for line in text([old, new]).splitlines()] == [
        "CPUTime,RSS",
        "0.500000,7",
        "1.500000,8",
    ]


def test_csv_leaves_missing_values_empty_and_uncounted() -> None:
    table = table_of(
        "Tasks", {"RSS": [4, 2**64 - 1, 8], "CPUTime": [1.0, 1.8446744073709552e19, 3.0]}
    )
    assert [line.split(",")[5:] for line in text([table]).splitlines()] == [
        ["RSS", "CPUTime"],
        ["4", "1.000000"],
        ["", ""],
        ["8", "3.000000"],
    ]
    assert "18446744073709551615,18446744073709551616.000000" in text([table], sentinels=True)
    totals = text([table], Level.NODE_TOTALS).splitlines()[1]
    assert totals.endswith(",4,8,12,6.000000,1.000000,3.000000,4.000000,2.000000")
    records = list(extract_records([table]))
    assert [record["RSS"] for record in records] == [4, None, 8]


def test_totals_are_correct_where_sh5util_fails() -> None:
    """sh5util's maxima of negative numbers are 0, and its sums overflow."""
    table = table_of("Other", {"x": [-2.0, -1.0], "y": [2**63, 2**63]})
    row = text([table], Level.NODE_TOTALS).splitlines()[1]
    assert f"-2.000000,-1.000000,-3.000000,-1.500000,{2**63},{2**63},{2**64}," in row


def test_extract_totals_steps() -> None:
    with open_profile(DATA / "merged" / "job_3.h5") as profile:
        tables = of_series(profile, "Energy")
        rows = list(csv.DictReader(io.StringIO(text(tables, Level.STEP_TOTALS))))
        nodes = list(csv.DictReader(io.StringIO(text(tables, Level.NODE_TOTALS))))
    assert [row["Step"] for row in rows] == ["0", "1", "2", "3", "4", "5", "batch"]
    assert int(rows[0]["Sum_Power"]) == sum(int(n["Sum_Power"]) for n in nodes if n["Step"] == "0")
    assert rows[0]["ElapsedTime"] == "27"


def test_extract_totals_empty_table_without_values() -> None:
    empty = table_of("Energy", {"Power": []})
    assert text([empty], Level.NODE_TOTALS).splitlines()[1] == "0,c1,,,,,,,,,"
    assert next(extract_records([empty], Level.NODE_TOTALS))["Avg_Power"] is None
    assert text([empty]).count("\n") == 1


def test_csv_quotes_names() -> None:
    table = table_of("Energy", {"Power": [5]}, node='c1,"x"\n%d')
    rows = list(csv.reader(io.StringIO(text([table]), newline="")))
    assert rows[1][:2] == ["0", 'c1,"x"\n%d']


def test_extract_rejects_several_series() -> None:
    tables = [table_of("Energy", {"Power": [1]}), table_of("Network", {"InMB": [1.0]})]
    with pytest.raises(DataError, match="one series at a time: Energy, Network"):
        text(tables)


def test_parse_level_accepts_names_of_sh5util() -> None:
    """In upper or lower case; sh5util treats anything else as time series."""
    assert parse_level("node:totals") is Level.NODE_TOTALS
    assert parse_level("Node:TimeSeries") is Level.NODE_TIME_SERIES
    with pytest.raises(DataError, match="not a level: 'bogus'.*Step:Totals"):
        parse_level("bogus")


whole = st.integers(0, 2**64 - 1)
real = st.floats(0, 1e12)


@given(st.lists(st.tuples(whole, real), min_size=1, max_size=40), st.sampled_from(Level))
def test_records_equal_csv(values: list[tuple[int, float]], level: Level) -> None:
    table = table_of("Tasks", {"RSS": [v[0] for v in values], "CPUTime": [v[1] for v in values]})
    rows = list(csv.DictReader(io.StringIO(text([table], level))))
    records = list(extract_records([table], level))
    assert len(rows) == len(records)
    for row, record in zip(rows, records, strict=True):
        assert list(row) == list(record)
        for name, value in record.items():
            if isinstance(value, float):
                assert row[name] == f"{value:f}"
            elif not (name == "Sum_RSS" and row[name] == "0"):
                assert (
                    row[name] == ("" if value is None else str(value)) or record["Min_RSS"] is None
                )


def test_samples_have_fields_and_tags_of_step() -> None:
    [first, second] = samples([table_of("Tasks", {"RSS": [1, 2]}, step="3")], "fox", "17")
    assert [message.name for message in first] == ["task_mem_rss"]
    assert [first[0].value, second[0].value] == [1024, 2048]
    assert [first[0].time, second[0].time] == [START * 10**9, (START + 1) * 10**9]
    assert first[0].tags["cluster"] == "fox"
    assert first[0].hostname == "c1"
    assert first[0].tags["stype-id"] == "17.3.0"


def test_samples_prefer_job_of_file() -> None:
    path = next(path for path in NODE_STEPS if path.name.endswith("_c1.h5"))
    with open_profile(path) as profile:
        job = profile.tables[0].node_step.job
        found = [m for one in samples(profile.tables, "fox", "999") for m in one]
    assert job is not None
    assert {m.tags["stype-id"].split(".")[0] for m in found if "stype-id" in m.tags} == {str(job)}


@pytest.mark.parametrize("path", NODE_STEPS, ids=lambda path: path.name)
def test_samples_of_real_files_are_valid(path: object) -> None:
    names = {name for fields in METRICS.values() for name, _ in fields.values()}
    with open_profile(path) as profile:  # type: ignore[arg-type]
        found = [m for one in samples(profile.tables, "fox", "1") for m in one]
    assert found
    assert {message.name for message in found} <= names
    assert not [problem for message in found for problem in message.problems()]
