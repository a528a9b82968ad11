"""``samples`` as a hypertable of TimescaleDB, if its extension is installed.

Only features of TimescaleDB's Apache edition are used.
"""

from collections.abc import Sequence
from typing import Any

from ccpipe.errors import RejectedError
from ccpipe.formats.lineprotocol.precision import NO_TIME

IS_AVAILABLE = """
    SELECT EXISTS (SELECT FROM pg_proc
                   WHERE proname = 'create_hypertable' AND pg_function_is_visible(oid))
"""

# A partitioned table cannot become a hypertable.
CREATE = """
    CREATE TABLE samples_plain (LIKE samples);
    DROP VIEW messages;
    DROP TABLE samples;
    ALTER TABLE samples_plain RENAME TO samples;
    CREATE INDEX samples_time ON samples USING brin (time);
    SELECT create_hypertable('samples', 'time', chunk_time_interval => interval '1 day',
                             create_default_indexes => false);
    CREATE VIEW messages AS
        SELECT time, ns, name, field, cluster, hostname, type, type_id, stype, stype_id, tags,
               value, "int", uint, bool, text
        FROM samples JOIN series ON series.id = samples.series;
"""
"""Applied to the empty table of the migrations."""

DROP_CHUNKS = """
    SELECT drop_chunks('samples', older_than => now() - $1::float * interval '1 second')
"""
"""Chunks whose rows are all older than a number of seconds."""

_IS_ONE = """
    SELECT EXISTS (
        SELECT FROM timescaledb_information.hypertables
        WHERE to_regclass(format('%I.%I', hypertable_schema, hypertable_name))
              = to_regclass('samples')
    )
"""


async def is_hypertable(connection: Any) -> bool:
    view = "SELECT to_regclass('timescaledb_information.hypertables') IS NOT NULL"
    return bool(await connection.fetchval(view) and await connection.fetchval(_IS_ONE))


def refuse_no_time(times: Sequence[int]) -> None:
    """Raise RejectedError for rows without a time, which a hypertable cannot store."""
    if NO_TIME in times:
        raise RejectedError(
            "TimescaleDB cannot store a line without a time",
            [row for row, time in enumerate(times) if time == NO_TIME],
        )
