"""A query whose files are merged while it runs."""

from pathlib import Path

import duckdb
import pytest

from ccpipe.cli.query import run
from ccpipe.cli.query.run import QueryRun
from ccpipe.cli.query.writers import ResultCsvWriter
from ccpipe.errors import UnavailableError
from ccpipe.formats.lineprotocol import to_lines
from ccpipe.sinks.parquet import ParquetSink
from ccpipe.sources.stored.parquet_tables import TRIES, make_tables
from tests.sinks.conftest import metric


async def write(directory: Path, value: float) -> None:
    async with ParquetSink(dir=str(directory), compact=False) as sink:
        await sink.write(to_lines([metric(value)]))


@pytest.mark.parametrize("times", [TRIES - 1, TRIES])
async def test_query_is_repeated_if_files_were_removed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
    times: int,
) -> None:
    """A bridge may merge files at any time; after several attempts that is an error."""
    for value in range(TRIES + 1):
        await write(tmp_path, value)
    removed = 0

    def make(
        connection: duckdb.DuckDBPyConnection, directory: Path
    ) -> tuple[list[str], dict[str, str]]:
        nonlocal removed
        made = make_tables(connection, directory)
        if removed < times:
            removed += 1
            Path(made[0][0]).unlink()
        return made

    monkeypatch.setattr(run, "make_tables", make)
    query = QueryRun(
        str(tmp_path), "select sum(1) as n from metrics", ResultCsvWriter(), is_unsafe=False
    )
    if times < TRIES:
        assert query.run() == []
        assert capfdbinary.readouterr().out == b"n\n2\n"
    else:
        with pytest.raises(UnavailableError, match="try again"):
            query.run()
