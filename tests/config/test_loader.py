"""Configuration: where values come from, and what is said of wrong ones."""

import math
import socket
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.config import (
    Batching,
    Bus,
    Duration,
    Interval,
    Recipe,
    Site,
    Size,
    convert,
    find_config,
    load,
    merge,
    read_toml,
    set_at_path,
    state_folder,
)
from ccpipe.config.loader import _report_unknown
from ccpipe.errors import ConfigError, MissingInputError

RECIPE: dict[str, Any] = {"source": {"use": "nats"}, "sink": {"use": "stdout"}}


def written(folder: Path, text: str) -> Path:
    """Write a configuration file."""
    path = folder / "ccpipe.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_an_empty_configuration_is_a_whole_one() -> None:
    """Everything has a default; the node goes by its short name."""
    site = load(None, Site, environ={})
    assert site == Site()
    assert site.hostname == socket.gethostname().partition(".")[0]
    assert load(None, Recipe, environ={}, below=RECIPE).batch == Batching()


def test_a_file_is_read(tmp_path: Path) -> None:
    """Every kind of value in its place."""
    path = written(
        tmp_path,
        """
        cluster = "fox.educloud.no"
        [bus]
        servers = ["nats://a", "nats://b"]
        jetstream = false
        stream_age = "36h"
        stream_size = "5GB"
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
        stream_age=Duration(36 * 3600),
        stream_size=Size(5 * 10**9),
        subjects={"metrics": "hpc-nats"},
    )
    assert site.publish.interval == 0.25
    assert site.publish.collectors == {"cpu": {"per_core": True}}


def test_flags_win_over_the_environment_over_the_file_over_the_site(tmp_path: Path) -> None:
    """Later words win; what they do not mention stays. A flag that was not given is no word."""
    site = {"cluster": "site", "hostname": "site", "bus": {"user": "site", "ca_file": "site"}}
    path = written(tmp_path, 'cluster = "file"\nhostname = "file"\nbus.user = "file"\n')
    names = {"CCPIPE_CLUSTER": "environment", "CCPIPE_BUS__USER": "environment"}
    flags = {"cluster": "flag", "hostname": None}
    loaded = load(path, Site, below=site, environ=names, flags=flags)
    assert loaded.cluster == "flag"
    assert loaded.hostname == "file"
    assert loaded.bus.user == "environment"
    assert loaded.bus.ca_file == "site"


def test_what_lies_below_is_not_changed(tmp_path: Path) -> None:
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
def test_a_list_in_the_environment_has_commas(text: str, servers: list[str]) -> None:
    """Spaces around them do not count, nor does an empty variable."""
    assert load(None, Site, environ={"CCPIPE_BUS__SERVERS": text}).bus.servers == servers


@pytest.mark.parametrize(
    ("text", "servers"), [('["a:1", "b:2"]', ["a:1", "b:2"]), ("[", "["), ("a:1,b:2", "a:1,b:2")]
)
def test_a_list_of_a_part_in_the_environment_is_written_as_in_toml(
    text: str, servers: object
) -> None:
    """Options of sources and sinks have no type here, so a comma may belong to the text."""
    table = '[source]\nuse = "null"\n[sink]\nuse = "kafka"\n'
    below = tomllib.loads(table)
    loaded = load(None, Recipe, environ={"CCPIPE_SINK__BROKER__SERVERS": text}, below=below)
    assert loaded.sink["broker"] == {"servers": servers}


def test_the_environment_has_only_text() -> None:
    """Numbers, booleans, durations, sizes and keys of open tables are read out of it."""
    environ = {
        "CCPIPE_BUS__JETSTREAM": "false",
        "CCPIPE_BUS__STREAM_SIZE": "1GiB",
        "CCPIPE_PUBLISH__INTERVAL": "5m",
        "CCPIPE_PUBLISH__TAGS__RACK": "7",
        "CCPIPE_BATCH__LINES": "500",
        "CCPIPE_BATCH__AGE": "2s",
        "CCPIPE_SINK__URL": "http://db:8428",
        "CCPIPE_SINK__PORT": "5432",
        "HOME": "/root",
    }
    recipe = load(None, Recipe, environ=environ, below=RECIPE)
    assert recipe.bus.jetstream is False
    assert recipe.bus.stream_size == 2**30
    assert float(recipe.publish.interval) == 300
    assert recipe.publish.tags == {"rack": "7"}
    assert recipe.batch == Batching(lines=500, age=Duration(2))
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
def test_variables_that_are_not_settings_are_ignored(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Those of ccpipe itself, of nats.conf, and of Kubernetes for a Service called ccpipe."""
    with caplog.at_level("WARNING"):
        assert load(None, Site, environ={name: "tcp://10.0.0.1:80"}) == Site()
    assert not caplog.records


@pytest.mark.parametrize("name", ["CCPIPE_SITE", "CCPIPE_BACKUP_HOST", "CCPIPE_ADMIN_PASSWORD"])
def test_a_variable_of_the_site_is_reported_once(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
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
        ("CCPIPE_PUBLISH_CONTROL_PUT", "CCPIPE_PUBLISH__CONTROL__PUT"),
        ("CCPIPE_SINK_URL", "CCPIPE_SINK__URL"),
    ],
)
def test_a_typo_in_a_setting_is_an_error(name: str, meant: str) -> None:
    """A variable that resembles a setting is never ignored."""
    for kind in (Site, Recipe):
        with pytest.raises(ConfigError, match=f"^{name}: .*did you mean {meant}"):
            load(None, kind, environ={name: "x"}, below=RECIPE if kind is Recipe else None)


def test_variables_of_a_recipe_do_not_disturb_other_commands() -> None:
    """``export CCPIPE_SINK__URL=…`` is meant for bridges; ``ccpipe tail`` works beside it."""
    assert load(None, Site, environ={"CCPIPE_SINK__URL": "x", "CCPIPE_BATCH__AGE": "1s"}) == Site()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("250ms", 0.25), ("10s", 10), ("5m", 300), ("2h", 7200), ("1d", 86400), (".5 h", 1800)],
)
def test_durations_have_units(text: str, seconds: float) -> None:
    """A number and a unit, or a plain number of seconds."""
    for value in (text, seconds, str(seconds)):
        assert convert({"age": value}, Batching, "f").age == seconds


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("64KiB", 2**16),
        ("4MiB", 2**22),
        ("1GiB", 2**30),
        ("1.5GiB", 3 * 2**29),
        ("5 MB", 5 * 10**6),
        ("2KB", 2000),
        ("3GB", 3 * 10**9),
        ("7B", 7),
    ],
)
def test_sizes_have_units(text: str, size: int) -> None:
    """Those of ten and those of two are told apart; a plain number counts bytes."""
    for value in (text, size, str(size)):
        assert convert({"memory": value}, Batching, "f").memory == size


WRONG = [-1, -0.5, math.nan, math.inf, -math.inf, 10**400, "9" * 400, True, "", "x", "-1s", "1.2.3"]
WRONG += ["10 parsecs", "1e3", "10S", [], {}, "inf", "nan", "½", "\u0661s"]


@pytest.mark.parametrize("value", WRONG)
@pytest.mark.parametrize(
    ("kind", "key", "name"),
    [
        (Batching, "age", "a duration"),
        (Batching, "memory", "a size"),
        (Site, "publish", "an interval"),
    ],
)
def test_what_is_no_measure_is_refused(kind: Any, key: str, name: str, value: Any) -> None:
    """Neither negative nor endless nor without meaning, and the error says what it must be."""
    tree = {key: {"interval": value}} if kind is Site else {key: value}
    with pytest.raises(ConfigError, match=rf"f: {key}\S*: not {name}: ") as caught:
        convert(tree, kind, "f")
    assert len(str(caught.value)) < 200


def test_nothing_is_no_interval_but_a_duration() -> None:
    """Sampling every zero seconds is refused; waiting for zero seconds is not."""
    with pytest.raises(
        ConfigError, match=r"publish.interval: not an interval: 0 \(must be more than 0"
    ):
        convert({"publish": {"interval": 0}}, Site, "f")
    assert Interval(0) == convert({"age": 0}, Batching, "f").age


def failure(tree: dict[str, Any], kind: Any = Site, **more: Any) -> str:
    """Return what is said of a wrong tree."""
    with pytest.raises(ConfigError) as caught:
        load(None, kind, below=tree, environ={}, **more)
    return str(caught.value)


@pytest.mark.parametrize(
    ("tree", "said"),
    [
        ({"clustr": "x"}, "top level: unknown key 'clustr'; did you mean 'cluster'?"),
        ({"bus": {"server": []}}, "bus: unknown key 'server'; did you mean 'servers'?"),
        ({"batch": {"linse": 1}}, "batch: unknown key 'linse'; did you mean 'lines'?"),
        ({"batch": {"": 1}}, "batch: unknown key ''; known are age, bytes, lines, memory"),
        ({"batch": {"x`y - at `$": 1}}, "batch: unknown key 'x`y - at `$'; known are age,"),
        ({"telemetry": {"port": 1}}, "telemetry: unknown key 'port'; known are listen"),
        ({"cluster": 5}, "cluster: Expected `str`, got `int`"),
        ({"cluster": ""}, "cluster: Expected `str` of length >= 1"),
        ({"hostname": ""}, "hostname: Expected `str` of length >= 1"),
        ({"batch": {"lines": 0}}, "batch.lines: Expected `int` >= 1"),
        ({"bus": "nats://a"}, "bus: Expected `table`, got `str`"),
        ({"bus": {"servers": "nats://a"}}, "bus.servers: Expected `array`, got `str`"),
        ({"bus": {"servers": ["a", 1]}}, "bus.servers[1]: Expected `str`, got `int`"),
        ({"bus": {"jetstream": "maybe"}}, "bus.jetstream: Expected `bool`, got `str`"),
        ({"bus": {"subjects": {"a": "b", "dead": 1}}}, "bus.subjects.dead: Expected `str | table`"),
        ({"publish": {"collectors": {"cpu": 1}}}, "publish.collectors.cpu: Expected `table`"),
        ({"source": "nats"}, "source: Expected `table`, got `str`"),
        ({"translate": {"use": "select"}}, "translate: Expected `array`, got `table`"),
        ({"translate": ["select"]}, "translate[0]: Expected `table`, got `str`"),
    ],
)
def test_an_error_names_the_key_path_and_what_was_meant(tree: dict[str, Any], said: str) -> None:
    """In the words of TOML, down to the element of a list and the key of an open table."""
    assert failure({**RECIPE, **tree}, Recipe).startswith(f"configuration: {said}")


@pytest.mark.parametrize("missing", ["source", "sink"])
def test_a_recipe_has_both_ends(missing: str) -> None:
    """The error names the table that is missing."""
    tree = {key: value for key, value in RECIPE.items() if key != missing}
    assert failure(tree, Recipe) == f"configuration: top level: the key '{missing}' is missing"


def test_an_error_names_whoever_set_the_value(tmp_path: Path) -> None:
    """The file, the variable or the command line: where the reader has to look."""
    path = written(tmp_path, '[publish]\ninterval = "never"\n')
    with pytest.raises(ConfigError, match=f"^{path}: publish.interval: not an interval: 'never'"):
        load(path, Site, environ={})
    with pytest.raises(ConfigError, match="^CCPIPE_PUBLISH__INTERVAL: .* interval: 'ever'"):
        load(path, Site, environ={"CCPIPE_PUBLISH__INTERVAL": "ever"})
    with pytest.raises(ConfigError, match="^command line: .* not an interval: 'so'"):
        load(path, Site, environ={}, flags={"publish.interval": "so"})
    wrong = written(tmp_path, "bus.user = 5\n")
    with pytest.raises(ConfigError, match="^CCPIPE_BUS__SERVRS: bus: unknown key 'servrs'; did"):
        load(None, Site, environ={"CCPIPE_BUS__SERVRS": "a"})
    with pytest.raises(ConfigError, match=f"^{wrong}: bus.user: Expected `str`, got `int`"):
        load(wrong, Site, environ={"CCPIPE_BUS__SERVERS": "a"})


@pytest.mark.parametrize("value", ["text", 0, "", [], 5])
def test_a_value_cannot_be_set_in_what_is_no_table(value: Any) -> None:
    """The error names the variable or the flag and the key that is in the way."""
    with pytest.raises(ConfigError, match="CCPIPE_BUS__USER: bus is not a table"):
        load(None, Site, below={"bus": value}, environ={"CCPIPE_BUS__USER": "x"})
    with pytest.raises(ConfigError, match="bus.user: bus is not a table"):
        set_at_path({"bus": value}, ["bus", "user"], "x", "bus.user")


@pytest.mark.parametrize(
    "content",
    [
        b"cluster = ",
        b"cluster = 'a'\ncluster = 'b'",
        b"\xff",
        b"x = " + b"9" * 5000,
        b"x = " + b"[" * 5000 + b"]" * 5000,
    ],
)
def test_a_file_that_is_no_toml_is_named(tmp_path: Path, content: bytes) -> None:
    """Whatever is in it, one error says which file and why."""
    path = tmp_path / "x.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=f"^{path}: not TOML: ."):
        read_toml(path)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """A missing file and a folder are told apart."""
    with pytest.raises(MissingInputError, match=f"^{tmp_path}/none.toml: No such file"):
        read_toml(tmp_path / "none.toml")
    with pytest.raises(MissingInputError, match=f"^{tmp_path}: Is a directory"):
        read_toml(tmp_path)


def test_the_configuration_file_is_looked_for_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The named one, there or not; then the user's; a home is not needed."""
    monkeypatch.setenv("CCPIPE_CONFIG", "/elsewhere.toml")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert find_config() == Path("/elsewhere.toml")
    monkeypatch.delenv("CCPIPE_CONFIG")
    mine = tmp_path / "ccpipe" / "ccpipe.toml"
    mine.parent.mkdir()
    mine.touch()
    assert find_config() == mine
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    mine.parent.rename(tmp_path / "away")
    (tmp_path / ".config").mkdir()
    (tmp_path / "away").rename(tmp_path / ".config" / "ccpipe")
    assert find_config() == tmp_path / ".config" / "ccpipe" / "ccpipe.toml"


def test_the_state_folder_follows_xdg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What outlives a run lies below the user's state folder."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert state_folder() == tmp_path / "ccpipe"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert state_folder() == tmp_path / ".local" / "state" / "ccpipe"


def test_a_user_without_a_home_does_not_stop_us(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container may run as a user that no system knows."""

    def unknown() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("CCPIPE_CONFIG", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", unknown)
    assert find_config() in (None, Path("/etc/ccpipe/ccpipe.toml"))
    assert state_folder().name == "ccpipe"


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
def test_any_tree_is_a_configuration_or_a_configuration_error(tree: dict[str, Any]) -> None:
    """Never another exception, whatever a file says; and what is accepted makes sense."""
    for kind in (Site, Recipe):
        try:
            loaded = load(None, kind, below=tree, environ={})
        except ConfigError as error:
            assert str(error).startswith("configuration: ")  # noqa: PT017 - either is right
        else:
            assert loaded.publish.interval > 0
            assert loaded.publish.jitter is None or loaded.publish.jitter >= 0
            assert loaded.bus.stream_size >= 0


@given(
    names=st.dictionaries(
        st.lists(keys | st.sampled_from(["\udc80", ""]), min_size=1, max_size=3).map("__".join),
        st.text(max_size=8) | st.sampled_from(["10s", "true", "a,b", "\udc80"]),
        max_size=4,
    )
)
def test_any_environment_is_a_configuration_or_a_configuration_error(names: dict[str, str]) -> None:
    """Whatever the variables are called and say, bytes that are no text among them."""
    environ = {f"CCPIPE_{name.upper()}": text for name, text in names.items()}
    try:
        load(None, Recipe, below=RECIPE, environ=environ)
    except ConfigError as error:
        assert str(error)  # noqa: PT017 - no error at all is as good


@given(st.dictionaries(keys, trees, max_size=4), st.dictionaries(keys, trees, max_size=4))
def test_merging_keeps_what_is_above_and_adds_what_is_below(
    below: dict[str, Any], above: dict[str, Any]
) -> None:
    """Key by key through the tables; merging a tree with itself changes nothing."""
    merged = merge(dict(below), above)
    assert merged.keys() == below.keys() | above.keys()
    for key, value in merged.items():
        if isinstance(above.get(key), dict) and isinstance(below.get(key), dict):
            assert value == merge(dict(below[key]), above[key])
        else:
            assert value is (above[key] if key in above else below[key])


def test_a_wrong_key_deep_in_an_optional_table_is_explained() -> None:
    """Options of parts may be nested, optional or in lists; the suggestion finds its way."""

    class Tls(msgspec.Struct, forbid_unknown_fields=True):
        verify: bool = True

    class Options(msgspec.Struct, forbid_unknown_fields=True):
        tls: Tls | None = None
        hosts: list[Tls] = []
        named: dict[str, list[Tls]] = {}

    for tree, place in [
        ({"tls": {"verfy": True}}, "sink.tls"),
        ({"hosts": [{}, {"verfy": True}]}, "sink.hosts[1]"),
        ({"named": {"a": [], "b": [{"verfy": 1}]}}, "sink.named.b[0]"),
    ]:
        with pytest.raises(ConfigError) as caught:
            convert(tree, Options, "f", "sink")
        assert str(caught.value) == f"f: {place}: unknown key 'verfy'; did you mean 'verify'?"


def test_a_path_is_read_as_one() -> None:
    """Options of parts may be paths."""
    options = msgspec.defstruct("Options", [("dir", Path)])
    assert convert({"dir": "/a/b"}, options, "f").dir == Path("/a/b")  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="f: dir: not a Path: 5"):
        convert({"dir": 5}, options, "f")


def test_toml_itself_gives_what_the_trees_are_made_of() -> None:
    """The properties above speak of what a file can say: TOML knows infinity and dates."""
    assert tomllib.loads("a = inf\nb = 1979-05-27\n[c]\n")["a"] == math.inf
