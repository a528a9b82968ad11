"""``ccpipe backfill``: write what one store has into another."""

import contextlib
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from ccpipe.cli.bridge import limits, load_recipe, parts
from ccpipe.cli.console.options import Where
from ccpipe.cli.recipe.dead_letters import dead_letter_sink
from ccpipe.cli.recipe.pipe import run_pipe
from ccpipe.errors import ConfigError, UsageError
from ccpipe.formats.nodelist import expand
from ccpipe.sources.stored.backfill import (
    BackfillSource,
    Selection,
    Stored,
    from_parquet,
    from_postgres,
)
from ccpipe.telemetry import Telemetry
from ccpipe.terminal import Progress


async def backfill(
    place: str,
    /,
    *,
    from_: Annotated[Literal["parquet", "postgres"], Parameter(name="--from")],
    to: Path,
    start: datetime | None = None,
    end: datetime | None = None,
    node: str = "",
    rate: int = 0,
    checkpoint: Path | None = None,
    password_file: str = "",
    where: Where = Where(),  # noqa: B008 - frozen
) -> None:
    """Write what one store has into another.

    The source is a folder of Parquet files or a PostgreSQL database; the recipe
    says the translators and the sink. With a checkpoint it goes on where it was.

    Examples:
      ccpipe backfill parquet --from parquet --to bridges/victoriametrics.toml
      ccpipe backfill /data --from parquet --to a.toml --node 'n[1-9]'
      ccpipe backfill postgresql://db/m --from postgres --to b.toml --rate 5000

    Parameters
    ----------
    place
        The folder, or the postgresql:// address.
    from_
        What is read.
    to
        The recipe whose [[translate]] and [sink] are used.
    start
        The first time, such as 2025-02-20T12:00:00+01:00; without it the earliest.
    end
        The time at which to end; without it after the latest.
    node
        Only these nodes, such as n[1-9],login.
    rate
        Lines per second at most; 0 for no limit.
    checkpoint
        File that says how far it is: what is in it is not written again.
    password_file
        File with the password of the database.
    """
    telemetry = Telemetry()
    recipe = load_recipe(to, where)
    _, between, sink = parts(recipe, to, telemetry)
    nodes = frozenset(expand(node)) if node else frozenset[str]()
    progress = Progress()
    async with _stored(from_, place, password_file, nodes) as stored:
        first = _nanoseconds(start, stored.first)
        last = _nanoseconds(end, stored.last + 1)
        if first >= last:
            raise UsageError("there is nothing between --start and --end")
        source = BackfillSource(
            stored.read,
            Selection(first, last, nodes),
            name=f"{from_} {place} to {to}",
            checkpoint=checkpoint,
            rate=rate,
            on_progress=lambda part: progress.show(f"{part:.1%} of the time is written"),
        )
        try:
            await run_pipe(
                source,
                sink,
                name=f"backfill {to.stem}",
                telemetry=telemetry,
                translators=between,
                dead_letter_sink=dead_letter_sink(source, sink, recipe, telemetry),
                limits=limits(sink, recipe.batch),
            )
        finally:
            progress.clear()


def _stored(
    from_: str, place: str, password_file: str, nodes: frozenset[str]
) -> contextlib.AbstractAsyncContextManager[Stored]:
    if from_ == "parquet":
        return from_parquet(Path(place), nodes)
    if not place.startswith(("postgresql://", "postgres://")):
        raise ConfigError(f"{place!r} is not a postgresql:// address")
    return from_postgres(place, password_file, nodes)


def _nanoseconds(time: datetime | None, otherwise: int) -> int:
    """Return a time; one without an offset is local."""
    if time is None:
        return otherwise
    return int(time.timestamp()) * 10**9 + time.microsecond * 1000
