"""The keys of ``ccpipe.toml`` and of recipes: defaults, ranges, and nothing unknown."""

import socket
from typing import Any

import msgspec
import pytest

from ccpipe.config import Site, to_struct
from ccpipe.config.site import Recipe
from ccpipe.errors import ConfigError

ENDS = {"source": {"use": "nats"}, "sink": {"use": "null"}}


def test_an_empty_file_is_a_complete_configuration() -> None:
    """A node has a name before anybody configured it: the first part of its host's."""
    site = to_struct({}, Site, "ccpipe.toml")
    assert site == Site()
    assert site.hostname == socket.gethostname().partition(".")[0]


def test_a_recipe_has_all_keys_of_a_site_and_needs_both_ends() -> None:
    """A bridge without a source or a sink would do nothing, silently."""
    recipe = to_struct({"cluster": "fox", **ENDS}, Recipe, "r.toml")
    assert (recipe.cluster, recipe.translate, recipe.batch.lines) == ("fox", [], None)
    fields = {field.name for field in msgspec.structs.fields(Site)}
    assert fields < {field.name for field in msgspec.structs.fields(Recipe)}
    for end in ENDS:
        with pytest.raises(ConfigError, match=end):
            to_struct({key: value for key, value in ENDS.items() if key != end}, Recipe, "r.toml")


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ({"cluster": ""}, "cluster"),
        ({"hostname": ""}, "hostname"),
        ({"bus": {"stream_replicas": 6}}, "bus.stream_replicas"),
        ({"bus": {"stream_partitions": 0}}, "bus.stream_partitions"),
        ({"bus": {"tls": "maybe"}}, "bus.tls"),
        ({"publish": {"spool": {"rate": 0}}}, "publish.spool.rate"),
        ({"publish": {"control": {"put": ["reboot"]}}}, "publish.control.put"),
        ({"publish": {"sonar": {"profile": "x"}}}, "publish.sonar.profile"),
        ({"batch": {"lines": 0}}, "batch.lines"),
    ],
)
def test_what_is_out_of_range_is_named_by_its_path(given: dict[str, Any], path: str) -> None:
    """Before anything starts."""
    with pytest.raises(ConfigError, match=path.replace(".", r"\.")):
        to_struct(given | ENDS, Recipe, "r.toml")


def test_no_table_takes_unknown_keys() -> None:
    """A key that is written wrong would otherwise be a default that nobody wanted."""
    tables = {"bus", "publish", "telemetry", "batch"}
    deeper = {"publish": {part: {"nonsense": 1} for part in ("sonar", "control", "spool")}}
    for given in [{name: {"nonsense": 1}} for name in tables] + [
        {"publish": {part: table}} for part, table in deeper["publish"].items()
    ]:
        with pytest.raises(ConfigError, match="nonsense"):
            to_struct(given | ENDS, Recipe, "r.toml")
