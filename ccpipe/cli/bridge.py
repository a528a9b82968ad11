"""``ccpipe bridge``: run a recipe."""

from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter

from ccpipe.cli.options import Where, seconds
from ccpipe.cli.pipe import run_pipe
from ccpipe.config import Batching, Recipe, load, read_toml, state_folder
from ccpipe.node.agent.parts import translators
from ccpipe.pipeline import DeadLetterSink, Limits, Sink, Source, Translator
from ccpipe.registry import build
from ccpipe.telemetry import Telemetry


async def bridge(
    recipe: Path,
    /,
    *,
    dry_run: bool = False,
    for_: Annotated[str | None, Parameter(name="--for")] = None,
    where: Where = Where(),  # noqa: B008 - frozen
) -> None:
    """Run a recipe: carry messages from a source into a store.

    Nothing is acknowledged before the store has it; what the store refuses goes
    to <cluster>.dead with its reason. SIGTERM writes what is in hand and ends.

    Examples:
      ccpipe bridge bridges/parquet.toml
      ccpipe bridge bridges/victoriametrics.toml --dry-run --for 10s
      CCPIPE_SINK__URL=http://db:8428 ccpipe bridge bridges/victoriametrics.toml

    Parameters
    ----------
    recipe
        TOML file with [source], [[translate]] and [sink].
    dry_run
        Print what would be written; acknowledge nothing.
    for_
        End after this time, such as 30s.
    """
    telemetry = Telemetry()
    loaded = load_recipe(recipe, where)
    if dry_run:
        # Without a durable consumer the real bridge loses nothing to this one.
        loaded = msgspec.structs.replace(
            loaded, source={**loaded.source, "durable": ""}, sink={"use": "stdout"}
        )
    source, between, sink = parts(loaded, recipe, telemetry)
    await run_pipe(
        source,
        sink,
        name=f"bridge {recipe.stem}",
        telemetry=telemetry,
        listen=loaded.telemetry.listen,
        translators=between,
        dead_letter_sink=dead_letter_sink(source),
        limits=limits(sink, loaded.batch),
        seconds=seconds(for_, "--for"),
    )


def load_recipe(path: Path, where: Where) -> Recipe:
    """Read a recipe, on top of the site's configuration."""
    site = where.path()
    if site:
        where.site()  # what is wrong in the site's file is told as the site's, not the recipe's
    return load(path, Recipe, flags=where.flags(), below=read_toml(site) if site else None)


def parts(
    recipe: Recipe, path: Path, telemetry: Telemetry
) -> tuple[Source, list[Translator], Sink]:
    """Make what a recipe names; raises ConfigError naming the key path of what is wrong."""
    context = {"site": recipe, "telemetry": telemetry}
    place = str(path)
    source = build("sources", recipe.source, where=place, path="source", context=context)
    between = translators(recipe.translate, where=place, path="translate", context=context)
    sink = build("sinks", recipe.sink, where=place, path="sink", context=context)
    return source, between, sink


def limits(sink: Sink, batch: Batching) -> Limits:
    """Return the sink's own batch sizes with the recipe's on top."""
    given = {
        key: value for key, value in msgspec.structs.asdict(batch).items() if value is not None
    }
    return msgspec.structs.replace(sink.limits, **given)


def dead_letter_sink(source: Source) -> DeadLetterSink:
    """Bury on the bus that the source reads, else in a file below the user's state folder."""
    from ccpipe.sinks.dead_letter_file import DeadLetterFile

    return source.dead_letter_sink or DeadLetterFile(state_folder() / "dead.lp")
