"""History from Parquet files that the real sink wrote."""

import time
from pathlib import Path

import pytest

from ccpipe.dashboard.history import MAX_POINTS, HistoryQuery, ParquetHistory
from ccpipe.errors import UnavailableError, UsageError
from ccpipe.formats.lineprotocol import decode
from ccpipe.sinks.parquet import ParquetSink

NOW = int(time.time())


async def written(directory: Path, text: str) -> None:
    async with ParquetSink(dir=str(directory)) as sink:
        await sink.write(decode(text.encode()))


@pytest.fixture
async def parquet(tmp_path: Path) -> ParquetHistory:
    """Ten minutes of two nodes, sockets and threads, and a cluster with a dot."""
    lines = []
    for second in range(NOW - 600, NOW, 10):
        for node in ("n1", "n2"):
            lines += [
                f"load,cluster=fox.test,hostname={node},type=node value={second - NOW} {second}",
                f"power,cluster=fox.test,hostname={node},type=socket,type-id=0 value=5 {second}",
                f"load,cluster=fox.test,hostname={node},type=hwthread,type-id=0 value=9 {second}",
                f"net,cluster=fox.test,hostname={node},stype=network,stype-id=e0 value=1 {second}",
                f'ccpipe,cluster=fox.test,hostname={node},loglevel=info,type=node log="x" {second}',
            ]
    await written(tmp_path / "lake", "\n".join(lines))
    return ParquetHistory(tmp_path / "lake")


async def test_history_has_series_of_parts(parquet: ParquetHistory) -> None:
    """By node, metric and part; not of threads, which are too many, nor of log messages."""
    answer = await parquet.read(HistoryQuery("fox.test", ["n1"], NOW - 700, NOW))
    assert [series[:3] for series in answer.series] == [
        ("n1", "load", ""),
        ("n1", "net", "network e0"),
        ("n1", "power", "socket 0"),
    ]
    assert not answer.cut


async def test_values_are_means_of_intervals(parquet: ParquetHistory) -> None:
    """Every interval has one point, at its number from the start."""
    answer = await parquet.read(HistoryQuery("fox.test", ["n2"], NOW - 600, NOW, ["load"]))
    [(_, _, _, places, values)] = answer.series
    assert answer.step == round(600 / MAX_POINTS)
    assert len(places) == 60
    for place, value in zip(places, values, strict=True):
        assert abs(place * answer.step - 600 - value) <= answer.step


async def test_history_of_unknown_data_is_empty(parquet: ParquetHistory, tmp_path: Path) -> None:
    """Another cluster, node, time or directory yields no series and no error."""
    for span in (
        HistoryQuery("fox", ["n1"], NOW - 700, NOW),
        HistoryQuery("fox.test", ["n3"], NOW - 700, NOW),
        HistoryQuery("fox.test", ["n1"], NOW - 90_000, NOW - 80_000),
        HistoryQuery("../lake", ["n1"], NOW - 700, NOW),
        HistoryQuery("..", ["n1"], NOW - 700, NOW),
    ):
        assert (await parquet.read(span)).series == []
    assert (
        await ParquetHistory(tmp_path / "none").read(HistoryQuery("c", ["n"], 1, 2))
    ).series == []


async def test_name_is_never_sql(parquet: ParquetHistory) -> None:
    """Names are parameters of the query."""
    hostile = "n1') OR 1=1 --"
    span = HistoryQuery("fox.test", [hostile], NOW - 700, NOW, ["load' OR '1'='1"])
    assert (await parquet.read(span)).series == []


@pytest.mark.parametrize(
    "span",
    [
        HistoryQuery("c", ["n"], 10, 10),
        HistoryQuery("c", ["n"], 10, 5),
        HistoryQuery("c", ["n"], -5, 5),
        HistoryQuery("c", [], 1, 2),
        HistoryQuery("c", ["n"] * 1000, 1, 2),
        HistoryQuery("c", ["n"], 1, 2**40),
        HistoryQuery("c", ["n"], float("nan"), 5),
    ],
)
async def test_invalid_time_range_is_rejected(tmp_path: Path, span: HistoryQuery) -> None:
    """The message names the reason."""
    with pytest.raises(UsageError):
        await ParquetHistory(tmp_path).read(span)


async def test_older_files_are_not_read(parquet: ParquetHistory) -> None:
    """A file's name contains its time of writing, and its rows are older."""
    [file] = parquet.directory.glob("*/*/*.parquet")
    old = file.with_name("20200101T000000.000000-00000000.parquet")
    old.write_bytes(b"this would fail")
    answer = await parquet.read(HistoryQuery("fox.test", ["n1"], NOW - 700, NOW))
    assert len(answer.series) == 3


async def test_broken_file_is_named(parquet: ParquetHistory) -> None:
    """With its directory."""
    [file] = parquet.directory.glob("*/*/*.parquet")
    file.with_name(f"{file.stem}-broken.parquet").write_bytes(b"PAR1 is not all")
    with pytest.raises(UnavailableError, match=r"-broken\.parquet"):
        await parquet.read(HistoryQuery("fox.test", ["n1"], NOW - 700, NOW))


def test_history_rejects_path_that_is_not_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="is not a directory"):
        ParquetHistory(tmp_path / "file")
