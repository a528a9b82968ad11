"""The keys of ``ccpipe.toml`` and of recipes: defaults, ranges, and no unknown keys."""

import socket
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from ccpipe.config import Site, to_struct
from ccpipe.config.site import Recipe
from ccpipe.errors import ConfigError, EncodeError
from ccpipe.formats.lineprotocol import decode, encode
from ccpipe.message import metric

ENDS = {"source": {"use": "nats"}, "sink": {"use": "null"}}


def test_recipe_has_all_keys_of_site() -> None:
    recipe = to_struct({"cluster": "fox", **ENDS}, Recipe, "r.toml")
    assert (recipe.cluster, recipe.translate, recipe.batch.max_records) == ("fox", [], None)
    fields = {field.name for field in msgspec.structs.fields(Site)}
    assert fields < {field.name for field in msgspec.structs.fields(Recipe)}


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ({"bus": {"stream_replicas": 6}}, "bus.stream_replicas"),
        ({"bus": {"stream_partitions": 0}}, "bus.stream_partitions"),
        ({"bus": {"tls": "maybe"}}, "bus.tls"),
        ({"publish": {"spool": {"replay_rate": 0}}}, "publish.spool.replay_rate"),
        ({"publish": {"control": {"allow": ["reboot"]}}}, "publish.control.allow"),
        ({"publish": {"sonar": {"profile": "x"}}}, "publish.sonar.profile"),
    ],
)
def test_value_out_of_range_is_named_by_path(given: dict[str, Any], path: str) -> None:
    with pytest.raises(ConfigError, match=path.replace(".", r"\.")):
        to_struct(given | ENDS, Recipe, "r.toml")


@pytest.mark.parametrize("text", ["n1\\", "n\n1", "n\t1", "\0", "\x7f", "\ud800"])
@pytest.mark.parametrize(
    ("given", "path"),
    [
        (lambda text: {"hostname": text}, "hostname: not a tag"),
        (lambda text: {"cluster": text}, "cluster: not a tag"),
        (lambda text: {"publish": {"tags": {"rack": text}}}, r"publish: tags\.rack: not a tag"),
        (lambda text: {"publish": {"tags": {text: "1"}}}, "publish: tags: not a tag"),
    ],
)
def test_site_rejects_name_invalid_as_tag(
    given: Callable[[str], dict[str, Any]], path: str, text: str
) -> None:
    """Exactly what the encoder refuses, before anything starts."""
    with pytest.raises(EncodeError):
        encode([metric("m", 1.0, time=1, tags={"hostname": text})])
    with pytest.raises(ConfigError, match=path):
        to_struct(given(text), Site, "ccpipe.toml")


@pytest.mark.parametrize("text", ["a b", "a,b", "a=b", 'a"b', "é", "a\\b", " "])
def test_site_accepts_name_that_can_be_escaped(text: str) -> None:
    assert to_struct({"hostname": text}, Site, "ccpipe.toml").hostname == text
    line = encode([metric("m", 1.0, time=1, tags={"hostname": text})])
    assert decode(line)[0].hostname == text


def test_site_requires_hostname(monkeypatch: pytest.MonkeyPatch) -> None:
    """The default would omit the tag of every line."""
    monkeypatch.setattr(socket, "gethostname", lambda: "")
    with pytest.raises(ConfigError, match="hostname: this host has no name"):
        to_struct({}, Site, "ccpipe.toml")


def test_tables_reject_unknown_keys() -> None:
    """A misspelled key would otherwise silently be a default."""
    tables = {"bus", "publish", "telemetry", "batch"}
    deeper = {"publish": {part: {"nonsense": 1} for part in ("sonar", "control", "spool")}}
    for given in [{name: {"nonsense": 1}} for name in tables] + [
        {"publish": {part: table}} for part, table in deeper["publish"].items()
    ]:
        with pytest.raises(ConfigError, match="nonsense"):
            to_struct(given | ENDS, Recipe, "r.toml")
