"""``ccpipe backfill``: copy data from one store to another."""

import contextlib
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from ccpipe.cli.bridge import batch_limits, load_recipe, recipe_parts, refuse_same_place
from ccpipe.cli.console.options import Rate, SiteOptions
from ccpipe.cli.recipe.pipe import dead_letter_sink, run_pipe
from ccpipe.cli.recipe.shipped import find_recipe
from ccpipe.config import mask
from ccpipe.errors import ConfigError, DataError, UsageError
from ccpipe.formats.nodelist import expand
from ccpipe.pipeline import Source
from ccpipe.sources.file import Format
from ccpipe.sources.stored.backfill import (
    EARLIEST,
    LATEST,
    BackfillSelection,
    BackfillSource,
    FilesSource,
    StoredRange,
    from_parquet,
    from_postgres,
)
from ccpipe.telemetry import Telemetry
from ccpipe.terminal import Progress, plural


async def backfill(
    *places: str,
    from_: Annotated[Literal["parquet", "postgres", "file"], Parameter(name="--from")],
    to: Path,
    start: datetime | None = None,
    end: datetime | None = None,
    node: str = "",
    format: Format | Literal["auto"] = "auto",  # noqa: A002 - as recipes call it
    rate: Rate = 0,
    checkpoint: Path | None = None,
    password_file: str = "",
    where: SiteOptions = SiteOptions(),
) -> None:
    """Copy data from one store to another.

    The source is a directory of Parquet files, a PostgreSQL database or files of
    line protocol, JSON lines or CSV; the recipe defines the translators and the
    sink. With a checkpoint, an interrupted run can be resumed.

    Examples:
      ccpipe backfill parquet --from parquet --to victoriametrics
      ccpipe backfill messages-*.csv.gz --from file --to a.toml --node 'n[1-9]'
      ccpipe backfill postgresql://db/m --from postgres --to b.toml --rate 5000

    Parameters
    ----------
    places
        The directory, the postgresql:// URL, or the files in order.
    from_
        Kind of source.
    to
        Recipe whose [[translate]] and [sink] are used: a TOML file, or a name as for
        `ccpipe bridge`.
    start
        First timestamp, such as 2025-02-20T12:00:00+01:00; default: the earliest.
    end
        Timestamp at which to stop; default: after the latest.
    node
        Only these nodes, such as n[1-9],login.
    format
        Format of files; auto: by suffix, .csv, .json, .jsonl, .ndjson, else line.
    checkpoint
        File that records progress: data recorded there is not written again.
    password_file
        File with the database password.
    """
    if not places or (from_ != "file" and len(places) > 1):
        raise UsageError("give one directory or address, or files with --from file")
    if rate < 0:
        raise UsageError(f"--rate {rate}: must not be negative")
    telemetry = Telemetry()
    path = find_recipe(to)
    recipe = load_recipe(path, where)
    if recipe.sink.get("use") == from_:
        refuse_same_place(places, recipe.sink)
    _, between, sink = recipe_parts(recipe, path, telemetry)
    progress = Progress()
    begin, finish = _nanoseconds(start), _nanoseconds(end)
    async with contextlib.AsyncExitStack() as stack:
        nodes = frozenset(expand(node)) if node else frozenset[str]()
        stored = None
        if from_ != "file":
            reading = _stored(from_, places[0], password_file, nodes)
            stored = await stack.enter_async_context(reading)
        source = _source(
            stored,
            places,
            BackfillSelection(
                begin if begin is not None else stored.first if stored else EARLIEST,
                finish if finish is not None else stored.last + 1 if stored else LATEST,
                nodes,
            ),
            format=format,
            name=" ".join([from_, *places, *_describe_range(start, end), "to", str(to)]),
            checkpoint=checkpoint,
            rate=rate,
            on_progress=progress.show,
        )
        try:
            await run_pipe(
                source,
                sink,
                name=f"backfill {to.stem}",
                telemetry=telemetry,
                translators=between,
                dead_letter_sink=dead_letter_sink(source, sink, recipe, telemetry),
                limits=batch_limits(sink, recipe.batch),
            )
        finally:
            progress.clear()
    if dead := telemetry.total(telemetry.dead):
        raise DataError(f"{plural(dead, 'line')} not written, but kept as dead letters")


def _source(
    stored: StoredRange | None,
    files: Sequence[str],
    selection: BackfillSelection,
    *,
    format: Format | Literal["auto"],  # noqa: A002 - as recipes call it
    **options: Any,
) -> Source[Any]:
    if selection.start >= selection.end:
        raise UsageError("there is nothing between --start and --end")
    if stored is None:
        return FilesSource([Path(file) for file in files], selection, format=format, **options)
    return BackfillSource(stored.read, selection, **options)


def _stored(
    from_: str, place: str, password_file: str, nodes: frozenset[str]
) -> contextlib.AbstractAsyncContextManager[StoredRange]:
    if from_ == "parquet":
        return from_parquet(Path(place), nodes)
    if not place.startswith(("postgresql://", "postgres://")):
        raise ConfigError(f"{mask(place, 'url')!r} is not a postgresql:// address")
    return from_postgres(place, password_file, nodes)


def _describe_range(start: datetime | None, end: datetime | None) -> Iterator[str]:
    for word, time in (("from", start), ("until", end)):
        if time is not None:
            yield f"{word} {time.isoformat()}"


def _nanoseconds(time: datetime | None) -> int | None:
    """Parse a time; one without an offset is local."""
    if time is None:
        return None
    return int(time.timestamp()) * 10**9 + time.microsecond * 1000
