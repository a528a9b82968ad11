"""Telegraf as a bridge: JetStream to a store, acknowledged when it is written.

It is built from its source with only the plug-ins that are needed::

    go build -tags custom,inputs.nats_consumer,outputs.discard,outputs.influxdb,\
outputs.parquet,outputs.postgresql,outputs.sql,parsers.influx,serializers.influx ./cmd/telegraf

Its output `opentelemetry` speaks gRPC alone, which neither receiver of OTLP here does, and it has
none for Delta: these stores have no row.
"""

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path

import nats

from benchmarks.bridges.streams import EMPTY, subject, unread
from benchmarks.servers import running
from benchmarks.timing import process_seconds

CONFIG = """
[agent]
omit_hostname = true
flush_interval = "1s"
metric_batch_size = {batch}
metric_buffer_limit = 1000000
quiet = true
[[inputs.nats_consumer]]
servers = ["{url}"]
subjects = []
jetstream_subjects = ["{subject}"]
queue_group = "{durable}"
max_undelivered_messages = 1000
data_format = "influx"
influx_timestamp_precision = "1s"
{output}
"""
OUTPUTS = {
    "null": "[[outputs.discard]]",
    "victoriametrics": (
        '[[outputs.influxdb]]\nurls = ["{address}"]\nskip_database_creation = true\n'
        'content_encoding = "identity"'
    ),
    "parquet": '[[outputs.parquet]]\ndirectory = "{address}"',
    "postgres": '[[outputs.postgresql]]\nconnection = "{address}"',
    "clickhouse": """
[[outputs.sql]]
driver = "clickhouse"
data_source_name = "{address}"
batch_transactions = true
table_template = '''CREATE TABLE {{TABLE}} ({{COLUMNS}})
ENGINE = MergeTree() ORDER BY ({{TAG_COLUMN_NAMES}}, {{TIMESTAMP_COLUMN_NAME}})'''
[outputs.sql.convert]
conversion_style = "literal"
integer = "Int64"
unsigned = "UInt64"
real = "Float64"
bool = "UInt8"
text = "String"
defaultvalue = "String"
timestamp = "DateTime"
""",
}
"""Configurations of outputs; that of ClickHouse makes a table of each metric."""
BATCHES = {"1": 500, "10": 5000}
"""Lines of a write where a thousand messages, which the broker leaves unacknowledged, are few."""
SECONDS = 60.0
"""How long one stream may take; it is left out where that is not enough."""


def speeds(
    program: Path,
    store: str,
    address: str,
    url: str,
    rows: Mapping[str, int],
    directory: Path,
) -> dict[str, float]:
    """Return lines per CPU-second by stream; none for a store without an output here."""
    if store not in OUTPUTS:
        return {}
    start = asyncio.run(_cpu_seconds(program, store, address, url, EMPTY, directory))
    found = {}
    for row, lines in rows.items():
        seconds = asyncio.run(_cpu_seconds(program, store, address, url, row, directory))
        if start is None or seconds is None:
            print(f"Telegraf to {store} {row}: not done in {SECONDS:.0f} s, and left out")
        else:
            found[row] = lines / (seconds - start)
            print(f"Telegraf to {store} {row}: {found[row] / 1e6:.2f} M lines/CPU-s")
    return found


async def _cpu_seconds(
    program: Path, store: str, address: str, url: str, row: str, directory: Path
) -> float | None:
    """Return the CPU seconds until a stream was written and acknowledged; None for too many."""
    durable = f"telegraf-{store}"
    config = directory / f"telegraf-{store}-{row}.toml"
    config.write_text(
        CONFIG.format(
            url=url,
            subject=subject(row),
            durable=durable,
            batch=BATCHES.get(row, 50_000),
            output=OUTPUTS[store].format(address=address),
        )
    )
    connection = await nats.connect(url)
    deadline = time.monotonic() + SECONDS
    try:
        with running([str(program), "--config", str(config)]) as process:
            await asyncio.sleep(2)  # to start
            while await unread(connection, row, durable):
                if time.monotonic() > deadline or process.poll() is not None:
                    return None
                await asyncio.sleep(0.1)
            return process_seconds(process.pid)
    finally:
        await connection.close()
