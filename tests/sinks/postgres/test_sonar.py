"""Sonar's envelopes in typed tables of a real PostgreSQL."""

import asyncio
import re
from array import array
from datetime import UTC, datetime
from typing import Any

import asyncpg
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ccpipe.formats.sonar import Envelope, MetadataObject, SampleData, SampleEnvelope
from ccpipe.formats.sonar.envelopes import Envelopes
from ccpipe.formats.sonar.types.sample import (
    SampleAttributes,
    SampleJob,
    SampleProcess,
    SampleProcessGpu,
    SampleSystem,
)
from ccpipe.sinks.postgres import PostgresSonarSink
from ccpipe.sinks.postgres.sonar import COLUMNS, rows
from tests.deliveries import provenance_of
from tests.formats.sonar.strategies import envelopes
from tests.paths import ROOT
from tests.servers.postgres import PASSWORD, Server


def sink(server: Server, database: str, **options: Any) -> PostgresSonarSink:
    return PostgresSonarSink(url=server.url(database), password_file=str(server.secret), **options)


def has_no_nul(envelope: Envelope) -> bool:
    return not any(nul in repr(rows([envelope])) for nul in ("\\x00", "\\u0000"))


@settings(
    max_examples=30, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)
@given(found=st.lists(envelopes.filter(has_no_nul), max_size=4))
def test_all_parts_of_envelope_become_rows(server: Server, found: list[Envelope]) -> None:
    """Whatever the specification allows is stored."""

    async def run() -> dict[str, int]:
        async with sink(server, "postgres") as target:
            connection = await asyncpg.connect(server.url("postgres"), password=PASSWORD)
            try:
                await connection.execute("TRUNCATE " + ", ".join(COLUMNS))
                await target.write(Envelopes(found))
                return {
                    table: await connection.fetchval(f"SELECT count(*) FROM {table}")  # noqa: S608
                    for table in COLUMNS
                }
            finally:
                await connection.close()

    expected = {table: len(rows(found).get(table, [])) for table in COLUMNS}
    assert asyncio.run(run()) == expected


def sample(minute: int, *jobs: tuple[int, str, str]) -> Envelope:
    """Return a node's envelope of one minute: jobs with their users and GPUs."""
    made = tuple(
        SampleJob(
            job=job,
            user=user,
            processes=(
                SampleProcess(
                    pid=job, cmd="train", gpus=(SampleProcessGpu(uuid=uuid, gpu_util=50.0),)
                ),
            ),
        )
        for job, user, uuid in jobs
    )
    attributes = SampleAttributes(
        time=f"2025-02-20T12:{minute:02}:00Z", cluster="fox", node="gpu-1", jobs=made
    )
    return SampleEnvelope(MetadataObject("sonar", "0.19.0"), SampleData(attributes))


async def test_missing_time_is_not_1970(server: Server) -> None:
    """The row is kept with the time of lines without one; a missing boot time is null."""
    database = await server.database()
    attributes = SampleAttributes(time="", cluster="fox", node="n1", system=SampleSystem())
    envelope = SampleEnvelope(MetadataObject("sonar", "0.19.0"), SampleData(attributes))
    async with sink(server, database) as target:
        await target.write(Envelopes([envelope]))
    found = await server.ask(database, "SELECT time::text, boot FROM sonar_samples")
    assert found == [("-infinity", None)]


async def test_query_finds_gpus_of_jobs_by_time(server: Server) -> None:
    """The documented query, with envelopes that were delivered twice."""
    database = await server.database()
    found = [sample(0, (7, "ann", "GPU-a")), sample(1, (7, "ann", "GPU-a"), (8, "bob", "GPU-b"))]
    ids = provenance_of(["c"] * 2, array("q", [1, 2]), array("q", [1, 2]), array("q", [1, 2]))
    async with sink(server, database) as target:
        await target.write(Envelopes(found, provenance=ids))
        await target.write(Envelopes(found[1:], provenance=ids.split(1)[1]))
    page = (ROOT / "docs/stores/postgres.md").read_text()
    (query,) = re.findall(r"```sql\n(SELECT cluster, job.*?)```", page, re.DOTALL)
    query = query.replace("now()", "timestamptz '2025-02-20 13:00:00Z'").rstrip(";\n")
    answer = await server.ask(database, query)
    spans = {(row[1], row[2], row[4], row[5].minute, row[6].minute) for row in answer}
    assert spans == {(7, "ann", "GPU-a", 0, 1), (8, "bob", "GPU-b", 1, 1)}
    ((processes,),) = await server.ask(database, "SELECT count(*) FROM sonar_processes")
    assert processes == 3


async def test_rows_beyond_retention_are_removed(server: Server) -> None:
    """Others stay."""
    database = await server.database()
    async with sink(server, database) as target:
        await target.write(Envelopes([sample(0, (7, "ann", "GPU-a"))]))
    await server.ask(
        database,
        "INSERT INTO sonar_process_gpus (time, cluster, node) VALUES (now(), 'fox', 'new')",
    )
    async with sink(server, database, retention=86_400.0) as target:
        await target.write(Envelopes([]))
    assert await server.ask(database, "SELECT node FROM sonar_process_gpus") == [("new",)]


async def test_check_requires_writable_tables_or_permission_to_create_them(server: Server) -> None:
    database = await server.database()
    await sink(server, database).check()
    async with sink(server, database):
        pass
    await sink(server, database).check()


def test_times_outside_datetime_are_clamped() -> None:
    """To the nearest one that a ``datetime`` can represent."""
    attributes = SampleAttributes(
        time="0001-01-01T00:00:00+23:00", cluster="c", node="n", system=SampleSystem()
    )
    envelope = SampleEnvelope(MetadataObject("sonar", "1"), SampleData(attributes))
    assert rows([envelope])["sonar_samples"][0][0] == datetime.min.replace(tzinfo=UTC)
