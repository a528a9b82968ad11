"""``ccpipe query``: SQL over a Delta table, in a directory and on S3-compatible storage."""

import json
from pathlib import Path
from typing import Any

from ccpipe.formats.lineprotocol import to_lines
from ccpipe.jobs import Job, JobNode, message
from ccpipe.message import Message, Uint
from ccpipe.sinks.delta import DeltaSink
from tests.cli.command import ccpipe
from tests.conftest import free_port
from tests.servers.s3 import ACCESS_KEY, BUCKET, SECRET_KEY, moto
from tests.sinks.conftest import NOON, SECOND, metric

SAMPLE = Message("x", {"cluster": "fox", "hostname": "n1"}, Uint(2**64 - 1), NOON + 123_456_789)
JOB = Job(cluster="fox", id=8, user="ann", start=NOON, nodes=(JobNode("n1"), JobNode("n2")))


async def write(**place: Any) -> None:
    async with DeltaSink(**place) as sink:
        metrics = [metric(float(n), time=NOON + n * SECOND, unit="GB") for n in range(4)]
        await sink.write(to_lines([*metrics, SAMPLE, message("start_job", JOB)]))


async def test_query_reads_delta_table_in_a_directory(tmp_path: Path) -> None:
    """The tables and their columns are those of Parquet files."""
    await write(url=str(tmp_path))
    done = ccpipe(
        "query", "select avg(value) as mean, unit from metrics where name = 'cpu_load' and "
        "date = date '2025-02-20' group by unit", "--dir", tmp_path, "-o", "json",
    )  # fmt: skip
    assert (done.code, done.out) == (0, '{"mean":1.5,"unit":"GB"}\n'), done.err
    done = ccpipe(
        "query", "select time, ns, uint from samples where name = 'x'", "--dir", tmp_path, "-o",
        "json",
    )  # fmt: skip
    assert json.loads(done.out) == {
        "time": "2025-02-20T12:00:00.123456Z", "ns": 789, "uint": 2**64 - 1,
    }  # fmt: skip
    done = ccpipe("query", "select job_id, nodes from jobs", "--dir", tmp_path, "-o", "json")
    assert json.loads(done.out) == {"job_id": 8, "nodes": ["n1", "n2"]}
    done = ccpipe("query", "select * from read_csv('/etc/passwd')", "--dir", tmp_path)
    assert done.code == 64
    assert "--unsafe" in done.err


async def test_query_reads_delta_table_on_storage(tmp_path: Path) -> None:
    """With keys from the environment, and without a download of DuckDB."""
    storage = await moto(tmp_path)
    await write(url=f"s3://{BUCKET}/t", **storage.options)
    keys: dict[str, Any] = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
    where = f"s3://{BUCKET}/t?endpoint={storage.url}"
    done = ccpipe("query", "select count(*) from samples", "--dir", where, "-o", "csv", **keys)
    assert (done.code, done.out) == (0, "count_star()\n6\n"), done.err
    empty = where.replace("/t?", "/other?")
    done = ccpipe("query", "select 1", "--dir", empty, **keys)
    assert (done.code, done.out) == (66, "")
    assert "no Delta table" in done.err
    storage.stop()
    done = ccpipe("query", "select 1", "--dir", where, **keys)
    assert done.code == 69
    assert "refused" in done.err


def test_query_refuses_other_addresses() -> None:
    """An address with a key is not shown."""
    done = ccpipe("query", "select 1", "--dir", f"http://127.0.0.1:{free_port()}")
    assert done.code == 78
    assert "--dir" in done.err
    done = ccpipe("query", "select 1", "--dir", "s3://key:secret@b/t")
    assert done.code == 78
    assert "secret" not in done.err
