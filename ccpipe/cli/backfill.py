"""``ccpipe backfill``: copy data from one store to another."""

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from cyclopts import Parameter

from ccpipe.cli.bridge import (
    Printer,
    batch_limits,
    copy_state,
    for_dry_run,
    recipe_parts,
    refuse_same_place,
)
from ccpipe.cli.console.options import (
    Nodes,
    Rate,
    Since,
    SiteOptions,
    Until,
    expand_nodes,
    point_in_time,
)
from ccpipe.cli.recipe.pipe import Discarded, Pipe, dead_letter_sink, run_pipe
from ccpipe.cli.recipe.shipped import RecipePath, find_recipe, load_recipe
from ccpipe.config import mask
from ccpipe.errors import ConfigError, DataError, UsageError
from ccpipe.pipeline import Source, Stages
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

FORMATS: dict[str, Format] = {name: name for name in get_args(Format)}


async def backfill(
    *source: str,
    from_: Annotated[
        Literal["parquet", "postgres", "file", "line", "json", "csv"], Parameter(name="--from")
    ],
    to: RecipePath,
    since: Since = None,
    until: Until = None,
    node: Nodes = None,
    rate: Rate = 0,
    checkpoint: Path | None = None,
    database_password_file: Path | None = None,
    dry_run: bool = False,
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
    source
        The directory, the postgresql:// URL, or the files in order.
    from_
        Kind of source: a store, or files, which are CSV (.csv), JSON lines (.json, .jsonl,
        .ndjson) or else line protocol; line, json and csv are for files with other suffixes.
    to
        Recipe whose [[translate]] and [sink] are used: a TOML file, or a name as for
        `ccpipe bridge`.
    since
        First timestamp, such as 2025-02-20T12:00:00+01:00; default: the earliest.
    until
        Timestamp at which to stop; default: after the latest.
    checkpoint
        File that records progress: data recorded there is not written again.
    database_password_file
        File with the database password.
    dry_run
        Print what would be written; write nothing and record no progress.
    """
    is_stored = from_ != "file" and from_ not in FORMATS
    if not source or (is_stored and len(source) > 1):
        raise UsageError("give one directory or address, or files with --from file")
    if rate < 0:
        raise UsageError(f"--rate {rate}: must not be negative")
    telemetry = Telemetry()
    path = find_recipe(to, where.path())
    recipe = load_recipe(path, where)
    if recipe.sink.get("use") == (from_ if is_stored else "file"):
        refuse_same_place(source, recipe.sink)
    progress = Progress()
    done = "printed" if dry_run else "written"
    begin = point_in_time(since, "--since") if since else None
    finish = point_in_time(until, "--until") if until else None
    nodes = frozenset(expand_nodes(node))
    async with contextlib.AsyncExitStack() as stack:
        if dry_run:
            temporary = stack.enter_context(tempfile.TemporaryDirectory(prefix="ccpipe-"))
            recipe = for_dry_run(recipe, Path(temporary))
            checkpoint = checkpoint and Path(
                copy_state(str(checkpoint), Path(temporary), "--checkpoint")
            )
        _, between, sink = recipe_parts(recipe, path, telemetry)
        stored = None
        if is_stored:
            reading = _stored(from_, source[0], database_password_file, nodes)
            stored = await stack.enter_async_context(reading)
        reader = _reader(
            stored,
            source,
            BackfillSelection(
                begin if begin is not None else stored.first if stored else EARLIEST,
                finish if finish is not None else stored.last + 1 if stored else LATEST,
                nodes,
            ),
            format=FORMATS.get(from_, "auto"),
            name=" ".join([from_, *source, *_describe_range(since, until), "to", str(to)]),
            checkpoint=checkpoint,
            rate=rate,
            on_progress=progress.show,
        )
        stages = Stages(between, reader.gives)
        letters = Discarded() if dry_run else dead_letter_sink(reader, sink, recipe, telemetry)
        if dry_run:
            sink = Printer(stages.gives)
        pipe = Pipe(
            source=reader,
            sink=sink,
            name=f"backfill {to.stem}",
            telemetry=telemetry,
            translators=stages,
            dead_letter_sink=letters,
            limits=batch_limits(sink, recipe.batch),
            done=done,
        )
        try:
            await run_pipe(pipe)
        finally:
            progress.clear()
    if dead := telemetry.total(telemetry.dead):
        kept = "" if dry_run else ", but kept as dead letters"
        raise DataError(f"{plural(dead, 'line')} not {done}{kept}")


def _reader(
    stored: StoredRange | None,
    files: Sequence[str],
    selection: BackfillSelection,
    *,
    format: Format | Literal["auto"],  # noqa: A002 - as recipes call it
    **options: Any,
) -> Source[Any]:
    if selection.start >= selection.end:
        raise UsageError("there is nothing between --since and --until")
    if stored is None:
        return FilesSource([Path(file) for file in files], selection, format=format, **options)
    return BackfillSource(stored.read, selection, **options)


def _stored(
    from_: str, place: str, password_file: Path | None, nodes: frozenset[str]
) -> contextlib.AbstractAsyncContextManager[StoredRange]:
    if from_ == "parquet":
        return from_parquet(Path(place), nodes)
    if not place.startswith(("postgresql://", "postgres://")):
        raise ConfigError(f"{mask(place, 'url')!r} is not a postgresql:// address")
    return from_postgres(place, str(password_file or ""), nodes)


def _describe_range(since: str | None, until: str | None) -> Iterator[str]:
    for word, time in (("from", since), ("until", until)):
        if time is not None:
            yield f"{word} {time}"
