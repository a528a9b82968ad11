"""Output of ``ccpipe hdf5``, and the directory of its input."""

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ccpipe.cli.hdf5.formats import json_lines, write_parquet
from ccpipe.cli.hdf5.options import configured_directory, write_output
from ccpipe.errors import CreateError, UnavailableError
from ccpipe.formats.slurm_profile.extract import Level, extract_records
from tests.formats.slurm_profile.samples import table_of

POWER = table_of("Energy", {"Power": [100, 2**60, 300]})
TASK = table_of("Tasks", {"RSS": [1, 2], "CPUUtilization": [0.5, 99.0]})


def test_json_lines_name_their_series() -> None:
    rows = [json.loads(line) for line in json_lines([POWER, TASK, POWER], Level.NODE_TIME_SERIES)]
    assert [row["Table"] for row in rows] == ["Energy"] * 6 + ["Tasks"] * 2
    assert [row["Power"] for row in rows[:3]] == [100, 2**60, 300]


def test_parquet_has_rows_and_types(tmp_path: Path) -> None:
    path = tmp_path / "out.parquet"
    write_parquet([POWER], Level.NODE_TIME_SERIES, path)
    table = pq.read_table(path)
    assert table.to_pylist() == list(extract_records([POWER]))
    assert table.schema.field("Power").type == pa.uint64()
    write_parquet([TASK], Level.NODE_TIME_SERIES, path)
    assert pq.read_table(path).schema.field("CPUUtilization").type == pa.float64()


def test_directory_is_read_from_slurm_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
    assert configured_directory() is None
    conf = tmp_path / "acct_gather.conf"
    conf.write_text("#ProfileHDF5Dir=/no\nprofilehdf5dir = /shared/p # here\n")
    assert configured_directory() == Path("/shared/p")
    conf.write_text("ProfileHDF5Default=all\n")
    assert configured_directory() is None


def test_failed_write_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="missing"):
        write_parquet([POWER], Level.NODE_TIME_SERIES, tmp_path / "missing" / "out.parquet")
    with pytest.raises(CreateError, match="nothing/x"):
        write_output(iter([b"a"]), tmp_path / "nothing" / "x")

    def broken() -> Iterator[bytes]:
        yield b"a"
        raise UnavailableError("the input ended")

    with pytest.raises(UnavailableError, match="the input ended"):
        write_output(broken(), tmp_path / "x")
    assert list(tmp_path.iterdir()) == []
