"""Values: units, errors with key path, origin and suggestion, masked secrets."""

import math
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.config import (
    Batching,
    Duration,
    Interval,
    Recipe,
    Site,
    Size,
    load,
    mask,
    plain,
    set_at_path,
    to_struct,
    with_unit,
)
from ccpipe.errors import ConfigError

RECIPE: dict[str, Any] = {"source": {"use": "nats"}, "sink": {"use": "stdout"}}


def failure(tree: dict[str, Any], kind: Any = Site, **more: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        load(None, kind, below=tree, environ={}, **more)
    return str(caught.value)


@pytest.mark.parametrize(
    ("tree", "said"),
    [
        ({"clustr": "x"}, "top level: unknown key 'clustr'; did you mean 'cluster'?"),
        ({"bus": {"server": []}}, "bus: unknown key 'server'; did you mean 'servers'?"),
        (
            {"publish": {"sonar": {"sample": "5m"}}},
            "publish.sonar: unknown key 'sample'; did you mean 'sample_interval'?",
        ),
        (
            {"batch": {"max_record": 1}},
            "batch: unknown key 'max_record'; did you mean 'max_records'?",
        ),
        ({"batch": {"": 1}}, "batch: unknown key ''; known are max_bytes, max_memory"),
        ({"batch": {"x`y - at `$": 1}}, "batch: unknown key 'x`y - at `$'; known are max_bytes,"),
        ({"telemetry": {"port": 1}}, "telemetry: unknown key 'port'; known are listen"),
        ({"cluster": 5}, "cluster: expected text, got an integer"),
        ({"cluster": ""}, "cluster: expected text of length >= 1"),
        ({"hostname": ""}, "hostname: expected text of length >= 1"),
        ({"batch": {"max_records": 0}}, "batch.max_records: expected an integer >= 1"),
        ({"bus": "nats://a"}, "bus: expected a table, got text"),
        ({"bus": {"servers": "nats://a"}}, "bus.servers: expected a list, got text"),
        ({"bus": {"servers": ["a", 1]}}, "bus.servers[1]: expected text, got an integer"),
        ({"bus": {"jetstream": "maybe"}}, "bus.jetstream: expected true or false, got text"),
        (
            {"bus": {"subjects": {"a": "b", "dead": 1}}},
            "bus.subjects.dead: expected text or a",
        ),
        ({"publish": {"collectors": {"cpu": 1}}}, "publish.collectors.cpu: expected a table"),
        ({"source": "nats"}, "source: expected a table, got text"),
        ({"translate": {"use": "select"}}, "translate: expected a list, got a table"),
        ({"bus": {"tls": "frist"}}, "bus.tls: invalid value 'frist'; did you mean 'first'? (one"),
        ({"translate": ["select"]}, "translate[0]: expected a table, got text"),
    ],
)
def test_error_names_key_path_and_suggestion(tree: dict[str, Any], said: str) -> None:
    """In TOML's terms, down to the element of a list and the key of an open table."""
    assert failure({**RECIPE, **tree}, Recipe).startswith(f"configuration: {said}")


@pytest.mark.parametrize("missing", ["source", "sink"])
def test_recipe_requires_source_and_sink(missing: str) -> None:
    tree = {key: value for key, value in RECIPE.items() if key != missing}
    assert failure(tree, Recipe) == f"configuration: top level: the key '{missing}' is missing"


def test_error_names_origin_of_value(tmp_path: Path) -> None:
    """The file, the variable or the command line."""
    path, wrong = tmp_path / "ccpipe.toml", tmp_path / "wrong.toml"
    path.write_text('[publish]\ninterval = "never"\n')
    with pytest.raises(ConfigError, match=f"^{path}: publish.interval: not an interval: 'never'"):
        load(path, Site, environ={})
    with pytest.raises(ConfigError, match="^CCPIPE_PUBLISH__INTERVAL: .* interval: 'ever'"):
        load(path, Site, environ={"CCPIPE_PUBLISH__INTERVAL": "ever"})
    with pytest.raises(ConfigError, match="^command line: .* not an interval: 'so'"):
        load(path, Site, environ={}, flags={"publish.interval": "so"})
    wrong.write_text("bus.user = 5\n")
    with pytest.raises(ConfigError, match="^CCPIPE_BUS__SERVRS: bus: unknown key 'servrs'; did"):
        load(None, Site, environ={"CCPIPE_BUS__SERVRS": "a"})
    with pytest.raises(ConfigError, match=f"^{wrong}: bus.user: expected text, got an integer"):
        load(wrong, Site, environ={"CCPIPE_BUS__SERVERS": "a"})


@pytest.mark.parametrize("value", ["text", 0, "", [], 5])
def test_setter_rejects_path_through_other_value_than_table(value: Any) -> None:
    """The error names the variable or the flag and the conflicting key."""
    with pytest.raises(ConfigError, match="CCPIPE_BUS__USER: bus is not a table"):
        load(None, Site, below={"bus": value}, environ={"CCPIPE_BUS__USER": "x"})
    with pytest.raises(ConfigError, match="bus.user: bus is not a table"):
        set_at_path({"bus": value}, ["bus", "user"], "x", "bus.user")


def test_error_suggests_key_deep_in_optional_table() -> None:
    """Options of parts may be nested, optional or in lists."""

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
            to_struct(tree, Options, "f", "sink")
        assert str(caught.value) == f"f: {place}: unknown key 'verfy'; did you mean 'verify'?"


def test_converter_reads_path() -> None:
    options = msgspec.defstruct("Options", [("dir", Path)])
    assert to_struct({"dir": "/a/b"}, options, "f").dir == Path("/a/b")  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="f: dir: not a Path: 5"):
        to_struct({"dir": 5}, options, "f")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("250ms", 0.25), ("10s", 10), ("5m", 300), ("2h", 7200), ("1d", 86400), (".5 h", 1800)],
)
def test_durations_have_units(text: str, seconds: float) -> None:
    for value in (text, seconds, str(seconds)):
        assert to_struct({"max_wait": value}, Batching, "f").max_wait == seconds


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
    """Decimal and binary units are distinguished; a plain number counts bytes."""
    for value in (text, size, str(size)):
        assert to_struct({"max_memory": value}, Batching, "f").max_memory == size


WRONG = [-1, -0.5, math.nan, math.inf, -math.inf, 10**400, "9" * 400, True, "", "x", "-1s", "1.2.3"]
WRONG += ["10 parsecs", "1e3", "10S", [], {}, "inf", "nan", "½", "\u0661s"]


@pytest.mark.parametrize(
    ("kind", "key", "name"),
    [
        (Batching, "max_wait", "a duration"),
        (Batching, "max_memory", "a size"),
        (Site, "publish", "an interval"),
    ],
)
def test_converter_rejects_invalid_measure(kind: Any, key: str, name: str) -> None:
    """Neither negative nor infinite nor unparsable, and the error names the expected form."""
    for value in WRONG:
        tree = {key: {"interval": value}} if kind is Site else {key: value}
        with pytest.raises(ConfigError, match=rf"f: {key}\S*: not {name}: ") as caught:
            to_struct(tree, kind, "f")
        assert len(str(caught.value)) < 200


def test_zero_is_duration_but_not_interval() -> None:
    """Sampling every zero seconds is refused; waiting for zero seconds is not."""
    with pytest.raises(
        ConfigError, match=r"publish.interval: not an interval: 0 \(must be more than 0"
    ):
        to_struct({"publish": {"interval": 0}}, Site, "f")
    assert Interval(0) == to_struct({"max_wait": 0}, Batching, "f").max_wait


@given(st.integers(0, 10**9), st.sampled_from([Duration, Size]))
def test_measure_survives_round_trip(value: int, kind: type[Duration | Size]) -> None:
    """The output of ``config show`` means the same when it is read."""
    assert to_struct(with_unit(kind(value)), kind, "x") == kind(value)


def test_configuration_is_written_in_usual_notation() -> None:
    tree = plain(Site(hostname="n"))
    assert tree["publish"]["interval"] == "10s"
    assert tree["bus"]["stream_max_bytes"] == "1GiB"
    assert to_struct(tree, Site, "x") == Site(hostname="n")


def test_user_and_password_in_urls_are_masked() -> None:
    """With any characters in the password; other text is unchanged."""
    assert mask("nats://a:p@q/r@h:1") == "nats://***@h:1"
    assert mask(["tls://tok@h", "nats://h", "a@b"]) == ["tls://***@h", "nats://h", "a@b"]
    assert mask(5) == 5


@pytest.mark.parametrize(
    "server",
    [
        "nats://u:hunter2@h:1",
        "u:hunter2@h:1",
        "nats:/u:hunter2@h",
        "nats:u:hunter2@h",
        "//u:hunter2@h",
        "nats://u:hunter2 with space@h",
        "nats://u:hunter2@x@h",
        "nats://u:hunter2/@h",
        "nats://u:nats://hunter2@h",
        "hunter2@h",
        "nats://u:hunter2\n@h",
        "http://h/write?u=x&password=hunter2",
        "host=h user=u password='hunter2 x' dbname=d",
    ],
)
def test_mask_hides_password_of_any_address(server: str) -> None:
    """With or without a scheme, however malformed: output may be pasted into a ticket."""
    site = to_struct({"bus": {"servers": [server]}, "hostname": "n"}, Site, "x")
    for shown in (mask(plain(site)), mask([server], "servers")):
        assert "hunter2" not in str(shown)
        assert "***" in str(shown)


def test_mask_hides_values_of_secret_keys() -> None:
    """Also in options of plug-ins: names of files are shown, contents are not."""
    table = {"use": "x", "token": "t", "password_file": "/etc/p", "tags": {"mail": "a@b"}}
    assert mask(table) == {**table, "token": "***"}


@given(st.text(), st.sampled_from(["servers", "url", "x", "token"]))
def test_mask_accepts_any_text(value: str, key: str) -> None:
    """Nothing raises, and no user name precedes a host."""
    assert isinstance(mask(value, key), str)
    assert mask(f"u:hunter2@{value.replace('@', '')}", "servers").startswith("***@")
