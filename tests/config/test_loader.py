"""Configuration: origin of values, and errors for wrong ones."""

import socket
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.config import Batching, Bus, Duration, Recipe, Site, Size, load
from ccpipe.config.loader import _report_unknown
from ccpipe.errors import ConfigError

RECIPE: dict[str, Any] = {"source": {"use": "nats"}, "sink": {"use": "stdout"}}


def written(directory: Path, text: str) -> Path:
    path = directory / "ccpipe.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_empty_configuration_is_complete() -> None:
    site = load(None, Site, environ={})
    assert site == Site()
    assert site.hostname == socket.gethostname().partition(".")[0]
    assert load(None, Recipe, environ={}, below=RECIPE).batch == Batching()


def test_loader_reads_file(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """
        cluster = "fox.educloud.no"
        [bus]
        servers = ["nats://a", "nats://b"]
        jetstream = false
        stream_max_age = "36h"
        stream_max_bytes = "5GB"
        subjects = { metrics = "hpc-nats" }
        [publish]
        interval = "250ms"
        collectors.cpu = { per_core = true }
        """,
    )
    site = load(path, Site, environ={})
    assert site.cluster == "fox.educloud.no"
    assert site.bus == Bus(
        servers=["nats://a", "nats://b"],
        jetstream=False,
        stream_max_age=Duration(36 * 3600),
        stream_max_bytes=Size(5 * 10**9),
        subjects={"metrics": "hpc-nats"},
    )
    assert site.publish.interval == 0.25
    assert site.publish.collectors == {"cpu": {"per_core": True}}


def test_flags_override_environment_file_and_site(tmp_path: Path) -> None:
    """Later values win; values they do not set are kept. A flag that is not given sets nothing."""
    site = {"cluster": "site", "hostname": "site", "bus": {"user": "site", "ca_file": "site"}}
    path = written(tmp_path, 'cluster = "file"\nhostname = "file"\nbus.user = "file"\n')
    names = {"CCPIPE_CLUSTER": "environment", "CCPIPE_BUS__USER": "environment"}
    flags = {"cluster": "flag", "hostname": None}
    loaded = load(path, Site, below=site, environ=names, flags=flags)
    assert loaded.cluster == "flag"
    assert loaded.hostname == "file"
    assert loaded.bus.user == "environment"
    assert loaded.bus.ca_file == "site"


def test_loader_does_not_change_lower_layer(tmp_path: Path) -> None:
    """Several recipes build on one site, and none of them writes into it."""
    below: dict[str, Any] = {"bus": {"user": "site"}, **RECIPE}
    before = msgspec.json.encode(below)
    path = written(tmp_path, '[bus]\nuser = "file"\n[sink]\nuse = "null"\n')
    load(path, Recipe, below=below, environ={"CCPIPE_BUS__CA_FILE": "x", "CCPIPE_SINK__A": "1"})
    assert msgspec.json.encode(below) == before


@pytest.mark.parametrize(
    ("text", "servers"),
    [
        ("nats://a", ["nats://a"]),
        ("nats://a,nats://b", ["nats://a", "nats://b"]),
        (" nats://a , nats://b, ", ["nats://a", "nats://b"]),
        ("", []),
    ],
)
def test_list_in_environment_is_split_at_commas(text: str, servers: list[str]) -> None:
    assert load(None, Site, environ={"CCPIPE_BUS__SERVERS": text}).bus.servers == servers


@pytest.mark.parametrize(
    ("text", "servers"), [('["a:1", "b:2"]', ["a:1", "b:2"]), ("[", "["), ("a:1,b:2", "a:1,b:2")]
)
def test_list_of_part_in_environment_is_toml(text: str, servers: object) -> None:
    """Options of sources and sinks have no type here, so a comma may belong to the text."""
    table = '[source]\nuse = "null"\n[sink]\nuse = "kafka"\n'
    below = tomllib.loads(table)
    loaded = load(None, Recipe, environ={"CCPIPE_SINK__BROKER__SERVERS": text}, below=below)
    assert loaded.sink["broker"] == {"servers": servers}


def test_environment_text_is_converted() -> None:
    """To numbers, booleans, durations, sizes and keys of open tables."""
    environ = {
        "CCPIPE_BUS__JETSTREAM": "false",
        "CCPIPE_BUS__STREAM_MAX_BYTES": "1GiB",
        "CCPIPE_PUBLISH__INTERVAL": "5m",
        "CCPIPE_PUBLISH__TAGS__RACK": "7",
        "CCPIPE_BATCH__MAX_RECORDS": "500",
        "CCPIPE_BATCH__MAX_WAIT": "2s",
        "CCPIPE_SINK__URL": "http://db:8428",
        "CCPIPE_SINK__PORT": "5432",
        "HOME": "/root",
    }
    recipe = load(None, Recipe, environ=environ, below=RECIPE)
    assert recipe.bus.jetstream is False
    assert recipe.bus.stream_max_bytes == 2**30
    assert float(recipe.publish.interval) == 300
    assert recipe.publish.tags == {"rack": "7"}
    assert recipe.batch == Batching(max_records=500, max_wait=Duration(2))
    assert recipe.sink == {"use": "stdout", "url": "http://db:8428", "port": "5432"}


@pytest.mark.parametrize(
    "name",
    [
        "CCPIPE_CONFIG",
        "CCPIPE_KERNEL",
        "CCPIPE_LOGLEVEL",
        "CCPIPE_TESTS_STRICT",
        "CCPIPE_NODE_PASSWORD",
        "CCPIPE_OPERATOR_PASSWORD",
        "CCPIPE_SERVICE_HOST",
        "CCPIPE_SERVICE_PORT",
        "CCPIPE_SERVICE_PORT_METRICS",
        "CCPIPE_PORT",
        "CCPIPE_PORT_4222_TCP",
        "CCPIPE_PORT_4222_TCP_ADDR",
        "CCPIPE_NATS_SERVICE_HOST",
        "CCPIPE_NATS_PORT_4222_TCP_PROTO",
    ],
)
def test_loader_ignores_variables_that_are_not_settings(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Of ccpipe itself, of nats.conf, and of Kubernetes for a Service called ccpipe."""
    with caplog.at_level("WARNING"):
        assert load(None, Site, environ={name: "tcp://10.0.0.1:80"}) == Site()
    assert not caplog.records


@pytest.mark.parametrize("name", ["CCPIPE_SITE", "CCPIPE_BACKUP_HOST", "CCPIPE_ADMIN_PASSWORD"])
def test_loader_reports_unknown_variable_once(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """It is not fatal: the prefix does not belong to ccpipe alone."""
    _report_unknown.cache_clear()
    for _ in range(3):
        assert load(None, Site, environ={name: "x"}) == Site()
    assert [record.getMessage().split()[0] for record in caplog.records] == [name]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("CCPIPE_BUS__SERVRES", "'servers'"),
        ("CCPIPE_BSU__SERVERS", "'bus'"),
        ("CCPIPE_CLUSTR", "CCPIPE_CLUSTER"),
        ("CCPIPE_BUS_SERVERS", "CCPIPE_BUS__SERVERS"),
        ("CCPIPE_BUS_SERVRES", "CCPIPE_BUS__SERVERS"),
        ("CCPIPE_PUBLISH_INTERVAL", "CCPIPE_PUBLISH__INTERVAL"),
        ("CCPIPE_PUBLISH_CONTROL_ALLOW", "CCPIPE_PUBLISH__CONTROL__ALLOW"),
        ("CCPIPE_SINK_URL", "CCPIPE_SINK__URL"),
    ],
)
def test_typo_in_setting_is_error(name: str, meant: str) -> None:
    """A variable that resembles a setting is never ignored."""
    for kind in (Site, Recipe):
        with pytest.raises(ConfigError, match=f"^{name}: .*did you mean {meant}"):
            load(None, kind, environ={name: "x"}, below=RECIPE if kind is Recipe else None)


def test_variables_of_recipe_do_not_affect_other_commands() -> None:
    """``export CCPIPE_SINK__URL=…`` is meant for bridges; ``ccpipe tail`` still works."""
    assert (
        load(None, Site, environ={"CCPIPE_SINK__URL": "x", "CCPIPE_BATCH__MAX_WAIT": "1s"})
        == Site()
    )


scalars = st.one_of(
    st.text(max_size=8),
    st.integers(),
    st.floats(),
    st.booleans(),
    st.dates(),
    st.sampled_from(["10s", "4MiB", "true", "1", 10**30]),
)
keys = st.one_of(
    st.text(max_size=4),
    st.sampled_from(
        [
            *Recipe.__struct_fields__,
            *Bus.__struct_fields__,
            *Batching.__struct_fields__,
            *["interval", "jitter", "collectors", "tags", "listen", "use"],
        ]
    ),
)
trees = st.recursive(
    scalars,
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(keys, inside, max_size=4),
    max_leaves=20,
)


@given(tree=st.dictionaries(keys, trees, max_size=5))
def test_loader_accepts_or_rejects_any_tree(tree: dict[str, Any]) -> None:
    """Never another exception; accepted values are valid."""
    for kind in (Site, Recipe):
        try:
            loaded = load(None, kind, below=tree, environ={})
        except ConfigError as error:
            assert str(error).startswith("configuration: ")  # noqa: PT017 - either is right
        else:
            assert loaded.publish.interval > 0
            assert loaded.publish.jitter is None or loaded.publish.jitter >= 0
            assert loaded.bus.stream_max_bytes >= 0


@given(
    names=st.dictionaries(
        st.lists(keys | st.sampled_from(["\udc80", ""]), min_size=1, max_size=3).map("__".join),
        st.text(max_size=8) | st.sampled_from(["10s", "true", "a,b", "\udc80"]),
        max_size=4,
    )
)
def test_loader_accepts_or_rejects_any_environment(names: dict[str, str]) -> None:
    """With any names and values, including bytes that are not text."""
    environ = {f"CCPIPE_{name.upper()}": text for name, text in names.items()}
    try:
        load(None, Recipe, below=RECIPE, environ=environ)
    except ConfigError as error:
        assert str(error)  # noqa: PT017 - no error at all is as good
