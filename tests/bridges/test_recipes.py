"""The recipes in ``bridges/``: each of them works unchanged."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from ccpipe.bus.codecs import Packing
from ccpipe.bus.codecs.line import LineCodec
from ccpipe.bus.codecs.sonar import SonarCodec
from ccpipe.bus.nats.source import NatsSource
from ccpipe.bus.subjects import Subjects
from ccpipe.config import Recipe, Site, load
from ccpipe.formats.lineprotocol import to_lines
from ccpipe.message import event
from ccpipe.pipeline import Limits, Sink, Source, Translator, run
from ccpipe.registry import build
from ccpipe.sinks.http_post import HttpPostSink
from ccpipe.telemetry import Telemetry
from tests.paths import ROOT

BRIDGES = ROOT / "bridges"
RECIPES = sorted(BRIDGES.glob("*.toml"))


def parts(
    path: Path, cluster: str = ""
) -> tuple[Source[Any], list[Translator[Any, Any]], Sink[Any]]:
    environ = {"CCPIPE_CLUSTER": cluster} if cluster else {}
    recipe = load(path, Recipe, environ=environ)
    telemetry = Telemetry()

    def make(group: str, table: dict[str, Any], where: str) -> Any:
        context = {"site": recipe, "telemetry": telemetry}
        return build(group, table, where=str(path), path=where, context=context)

    return (
        make("sources", recipe.source, "source"),
        [make("translators", table, "translate") for table in recipe.translate],
        make("sinks", recipe.sink, "sink"),
    )


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_recipe_is_constructed(path: Path) -> None:
    """Without opening anything; its sink states its preferred batch."""
    *_, sink = parts(path)
    assert isinstance(getattr(sink, "limits", None), Limits)


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_options_in_comments_of_recipe_exist(path: Path) -> None:
    """And limits in them are the sink's own."""
    lines = path.read_text().splitlines()
    lines = lines[lines.index("[sink]") :]
    written = {
        line.partition(" = ")[0] for line in lines
    }  # keys whose alternatives are in comments
    shown = [line.removeprefix("# ") for line in lines]
    tables = tomllib.loads(
        "\n".join(
            text
            for line, text in zip(lines, shown, strict=True)
            if text.startswith("[")
            or (
                " = " in text.partition("#")[0]
                and (line == text or text.partition(" = ")[0] not in written)
            )
        )
    )
    options = tables["sink"]
    options.pop("user", None)  # excludes the token, which is shown too
    options.pop("password_file", None)
    context = {"site": Site(), "telemetry": Telemetry()}
    sink = build("sinks", options, where=str(path), path="sink", context=context)
    recipe = load(path, Recipe, environ={}, below={"batch": tables["batch"]})
    for key in tables["batch"]:
        assert getattr(sink.limits, key) == getattr(recipe.batch, key), key


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_recipe_subscribes_to_subjects_of_its_cluster(path: Path) -> None:
    """With the default subjects; a placeholder taken literally would receive nothing."""
    source = parts(path, cluster="fritz")[0]
    if isinstance(source, NatsSource):
        assert {pattern.split(".")[0] for pattern in source.patterns} == {"fritz"}


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_recipe_sends_events_in_nanoseconds(path: Path) -> None:
    """As cc-lib's receivers read them; in seconds they would be stored in 1970.

    Exempt are stores that get the unit, or take no lines, and recipes of metrics alone.
    """
    *_, sink = parts(path)
    if any(table.get("kinds") == ["metric"] for table in load(path, Recipe, environ={}).translate):
        return
    codec = getattr(sink, "codec", None)
    if isinstance(codec, LineCodec):
        at = event("job", "stop_job", "{}", time=1795170834 * 10**9, tags={"type": "node"})
        subjects, packing = Subjects.of(Site(cluster="fox")), Packing(1000, 2**16, 2**20)
        [(_, payload)] = codec.encode(to_lines([at]), subjects, packing)
        assert payload.endswith(b" 1795170834000000000\n")
        assert codec.event_precision == "ns"
    elif isinstance(sink, HttpPostSink):
        assert sink.precision == "ns"
    else:
        assert codec is None or isinstance(codec, SonarCodec)


async def test_null_recipe_runs() -> None:
    """``null.toml`` runs unchanged to its end and writes everything that its source generates."""
    source, translators, sink = parts(BRIDGES / "null.toml")
    telemetry = Telemetry()
    await run(source, sink, translators=translators, telemetry=telemetry)
    made = load(BRIDGES / "null.toml", Recipe, environ={}).source
    assert telemetry.total(telemetry.written) == made["batches"] * made["lines"]
