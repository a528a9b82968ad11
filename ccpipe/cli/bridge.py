"""``ccpipe bridge``: run recipes."""

import asyncio
import contextlib
import shutil
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter

from ccpipe.cli.console.options import ExitAfter, SiteOptions, seconds
from ccpipe.cli.recipe.pipe import Discarded, Pipe, dead_letter_sink, run_pipe
from ccpipe.cli.recipe.several import naming, run_pipes
from ccpipe.cli.recipe.shipped import COMPLETED, find_recipe, load_recipe
from ccpipe.config import Batching, Recipe, mask
from ccpipe.errors import ConfigError, UsageError
from ccpipe.node.agent.parts import translators
from ccpipe.pipeline import Limits, Sink, Source, Stages, check_fit
from ccpipe.pipeline.stages import AnyTranslator
from ccpipe.records import Records
from ccpipe.registry import build
from ccpipe.telemetry import Telemetry

SHARED = ("durable", "group", "queue")
"""Options by which a source shares messages with other processes that have the same value."""

STATE_FILE = "state_file"
"""The option that names the file in which a part keeps its position."""


async def bridge(
    recipes: Annotated[list[Path], COMPLETED, Parameter(name="RECIPE")],
    /,
    *,
    dry_run: bool = False,
    for_: ExitAfter = None,
    where: SiteOptions = SiteOptions(),
) -> None:
    """Run recipes: move messages from sources into stores.

    Messages are acknowledged once the store has them; records that the store
    rejects go to <cluster>.dead with the reason. SIGTERM flushes and exits.

    Examples:
      ccpipe bridge parquet
      ccpipe bridge /etc/ccpipe/bridges/victoriametrics.toml --dry-run --for 10s
      CCPIPE_SINK__URL=http://db:8428 ccpipe bridge victoriametrics

    Parameters
    ----------
    recipes
        TOML files with [source], [[translate]] and [sink], or names of recipes in
        bridges/ next to the configuration file, or of those shipped with ccpipe.
        If several, they run side by side; if one fails, all end.
    dry_run
        Print what would be written; acknowledge nothing and save no state.
    """
    end_after = seconds(for_, "--for")
    paths = [find_recipe(recipe, where.path()) for recipe in recipes]
    refuse_same_name(paths)
    with contextlib.ExitStack() as stack:
        copies = None
        if dry_run:
            copies = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ccpipe-")))
        if len(paths) == 1:
            await run_pipe(recipe_pipe(paths[0], where, copies), seconds=end_after)
            return
        pipes = {}
        for path in paths:
            with naming(path.stem):
                pipes[path.stem] = recipe_pipe(path, where, copies and copies / path.stem)
        await run_pipes(pipes, seconds=end_after)


def refuse_same_name(paths: Iterable[Path]) -> None:
    """Raise UsageError for recipes that logs and metrics could not distinguish."""
    names: dict[str, Path] = {}
    for path in paths:
        if path.stem in names:
            raise UsageError(
                f"{path}: {names[path.stem]} has the same name; rename one, or run it separately"
            )
        names[path.stem] = path


def recipe_pipe(path: Path, where: SiteOptions, copies: Path | None) -> Pipe:
    """Load a recipe and construct its pipe; one that only prints if `copies` is given.

    Raises
    ------
    CcpipeError
        if the recipe cannot be loaded, or its parts do not fit together.

    """
    telemetry = Telemetry()
    loaded = load_recipe(path, where)
    if copies is not None:
        loaded = for_dry_run(loaded, copies)
    source, between, sink = recipe_parts(loaded, path, telemetry)
    stages = Stages(between, source.gives)
    if copies is not None:
        sink = Printer(stages.gives)
    check_fit(source, stages, sink)
    letters = dead_letter_sink(source, sink, loaded, telemetry) if copies is None else Discarded()
    return Pipe(
        source=source,
        sink=sink,
        name=f"bridge {path.stem}",
        telemetry=telemetry,
        listen=loaded.telemetry.listen,
        translators=stages,
        dead_letter_sink=letters,
        limits=batch_limits(sink, loaded.batch),
        done="written" if copies is None else "printed",
    )


def recipe_parts(
    recipe: Recipe, path: Path, telemetry: Telemetry
) -> tuple[Source[Any], list[AnyTranslator], Sink[Any]]:
    """Construct the parts of a recipe; raises ConfigError naming the key path."""
    context = {"site": recipe, "telemetry": telemetry}
    place = str(path)
    source = build("sources", recipe.source, where=place, path="source", context=context)
    if recipe.source["use"] == recipe.sink.get("use"):
        read = getattr(source, "paths", [recipe.source.get("dir", "")])
        refuse_same_place(read, recipe.sink)
    between = translators(recipe.translate, where=place, path="translate", context=context)
    sink = build("sinks", recipe.sink, where=place, path="sink", context=context)
    return source, between, sink


def refuse_same_place(inputs: Iterable[str], sink: Mapping[str, Any]) -> None:
    """Raise ConfigError if a sink, by its table, writes to one of the places that are read.

    It would read what it writes.
    """
    places = {str(sink[key]) for key in ("path", "dir", "url") if sink.get(key)}
    for each in filter(None, inputs):
        if any(_is_same(each, place) for place in places):
            raise ConfigError(f"sink: it would write to {mask(each, 'url')}, which is read")


def _is_same(place: str, other: str) -> bool:
    if "://" in place or "://" in other:
        return place == other
    one, two = Path(place).expanduser(), Path(other).expanduser()
    with contextlib.suppress(OSError):  # one of them does not exist
        return one.samefile(two)
    return one.resolve() == two.resolve()


def for_dry_run(recipe: Recipe, directory: Path) -> Recipe:
    """Return a variant of a recipe that prints, and changes neither files nor the broker.

    Its parts use copies, in `directory`, of the files in which they keep their positions.
    """
    return msgspec.structs.replace(
        recipe,
        source=_on_copies(recipe.source, directory / "source"),
        translate=[
            _on_copies(table, directory / f"translate-{i}")
            for i, table in enumerate(recipe.translate)
        ],
        sink={"use": "null"},
        batch=Batching(),
    )


def _on_copies(table: Mapping[str, Any], directory: Path) -> dict[str, Any]:
    """Return a table of a recipe whose persistent files are copies in a directory."""
    copied = {key: value for key, value in table.items() if key not in SHARED}
    if isinstance(path := copied.get(STATE_FILE), str) and path:
        copied[STATE_FILE] = copy_state(path, directory, STATE_FILE)
    return copied


def copy_state(path: str, directory: Path, name: str) -> str:
    """Copy a state file, if it exists, to a directory; return the path of the copy."""
    directory.mkdir(parents=True, exist_ok=True)
    copy = str(directory / Path(path).name)
    for suffix in ("", "-wal"):  # of a SQLite file
        try:
            shutil.copyfile(path + suffix, copy + suffix)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise ConfigError(f"{name}: {path}: {error.strerror}") from None
    return copy


class Printer(Sink[Any]):
    """Prints records of any type, one per line, as in dead letters."""

    limits = Limits(max_wait=0.1)

    def __init__(self, takes: type[Records]) -> None:
        self.takes = takes

    async def write(self, records: Records) -> None:
        text = b"".join(records.original(i) + b"\n" for i in range(len(records)))
        await asyncio.to_thread(self._print, text)

    @staticmethod
    def _print(text: bytes) -> None:
        sys.stdout.buffer.write(text)
        sys.stdout.buffer.flush()


def batch_limits(sink: Sink[Any], batch: Batching) -> Limits:
    given = {
        key: value for key, value in msgspec.structs.asdict(batch).items() if value is not None
    }
    return msgspec.structs.replace(sink.limits, **given)
