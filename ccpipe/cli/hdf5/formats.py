"""Extracted series as JSON lines, line protocol and Parquet, and published on the bus."""

import itertools
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ccpipe.atomic_file import replacing
from ccpipe.config import Site
from ccpipe.errors import MissingExtra, UnavailableError
from ccpipe.formats.lineprotocol import encode, to_lines
from ccpipe.formats.slurm_profile.extract import Level, by_series, extract_records, samples
from ccpipe.formats.slurm_profile.table import Table
from ccpipe.message import Message
from ccpipe.terminal import note

_ROWS = 10_000
_REPORT_SECONDS = 5.0
_LABELS = ("Run", "Step", "Node", "Series")


def json_lines(tables: Sequence[Table], level: Level) -> Iterator[bytes]:
    """Yield one object a line, with the names of the CSV's columns; ``Table`` is the series."""
    encoder = msgspec.json.Encoder()
    for series, group in by_series(tables).items():
        for record in extract_records(group, level):
            yield encoder.encode({"Table": series, **record}) + b"\n"


def line_protocol(tables: Sequence[Table], cluster: str, job: str | None = None) -> Iterator[bytes]:
    """Yield the samples as metrics in seconds; see ``samples``."""
    for sample in samples(tables, cluster, job):
        yield encode(sample, precision="s")


def write_parquet(tables: Sequence[Table], level: Level, path: Path) -> None:
    """Write the rows of one series to a Parquet file that appears when it is complete.

    Raises UnavailableError if the file cannot be written.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise MissingExtra("pyarrow", "parquet") from None
    records = extract_records(tables, level)
    rows = list(itertools.islice(records, _ROWS))
    if not rows:
        return
    schema = pa.schema([(name, _type(pa, name, tables)) for name in rows[0]])
    try:
        with (
            replacing(path) as draft,
            pq.ParquetWriter(draft, schema, compression="zstd") as writer,
        ):
            while rows:
                writer.write_table(pa.Table.from_pylist(rows, schema=schema))
                rows = list(itertools.islice(records, _ROWS))
    except OSError as error:
        raise UnavailableError(f"{path}: {error}") from error


async def publish_samples(tables: Sequence[Table], site: Site, job: str | None) -> int:
    """Publish all samples as metrics and return their number.

    `job` is the job of tables from files without a job ID. Raises UnavailableError, DeniedError as
    ``Sink.write`` does.
    """
    from ccpipe.bus.nats.sink import NatsSink
    from ccpipe.telemetry import Telemetry

    count = 0
    waiting: list[Message] = []
    reported = time.monotonic()
    async with NatsSink(site=site, telemetry=Telemetry()) as sink:
        for sample in samples(tables, site.cluster, job):
            waiting += sample
            count += 1
            if len(waiting) >= _ROWS:
                await sink.write(to_lines(waiting))
                waiting = []
            if time.monotonic() - reported > _REPORT_SECONDS:
                reported = time.monotonic()
                note(f"{count} samples published")
        await sink.write(to_lines(waiting))
    return count


def _type(pa: Any, column: str, tables: Sequence[Table]) -> Any:
    """Return the type of a column: the stored one, or the type of a field's total."""
    if column in _LABELS:
        return pa.string()
    what, _, field = column.partition("_")
    dtype = tables[0].dtype
    name = column if column in (dtype.names or ()) else field
    if what == "Avg" or dtype[name].kind == "f":
        return pa.float64()
    return pa.uint64()
