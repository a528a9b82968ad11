"""Names to classes, and a recipe's tables to their arguments."""

import dataclasses
import importlib
import textwrap
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from ccpipe.config import Duration, Size
from ccpipe.errors import ConfigError, MissingExtra
from ccpipe.registry import GROUPS, build, construct, entry_points, find, options_of
from ccpipe.telemetry import Telemetry

PLACE = {"where": "r.toml", "path": "sink"}


class Store:
    """A sink with an option of every sort."""

    def __init__(
        self,
        *,
        dir: str,  # noqa: A002 - a recipe's word
        lines: int = 100,
        age: Duration = Duration(5),
        size: Size | None = None,
        format: Literal["line", "json"] = "line",  # noqa: A002 - a recipe's word
        hosts: list[str] = ["localhost"],  # noqa: B006 - what this is about
        site: object = None,
        telemetry: Telemetry | None = None,
    ) -> None:
        self.given = dict(locals())


def stored(options: dict[str, Any], **context: Any) -> Any:
    return construct(Store, options, context=context, **PLACE)


def wrong(options: dict[str, Any], cls: type[Any] = Store) -> str:
    with pytest.raises(ConfigError) as caught:
        construct(cls, options, context={"site": None, "telemetry": None}, **PLACE)
    return str(caught.value)


def test_table_becomes_keyword_arguments() -> None:
    """Values are converted by annotation; absent keys get the class's default."""
    given = stored({"dir": "/data", "age": "2m", "size": "1GiB", "hosts": ["a", "b"]}).given
    assert given["dir"] == "/data"
    assert given["lines"] == 100
    assert given["age"] == 120
    assert given["size"] == 2**30
    assert given["hosts"] == ["a", "b"]


def test_options_from_environment_are_parsed() -> None:
    """Numbers and lists, as for the site's own keys."""
    given = stored({"dir": "d", "lines": "7", "hosts": "a, b"}).given
    assert (given["lines"], given["hosts"]) == (7, ["a", "b"])


def test_parts_do_not_share_mutable_defaults() -> None:
    stored({"dir": "d"}).given["hosts"].append("mine")
    assert stored({"dir": "d"}).given["hosts"] == ["localhost"]


def test_context_arguments_are_supplied_by_name() -> None:
    """They are not options, and a recipe cannot set them."""
    site, telemetry = object(), Telemetry()
    given = stored({"dir": "d"}, site=site, telemetry=telemetry, other=1).given
    assert given["site"] is site
    assert given["telemetry"] is telemetry
    assert wrong({"dir": "d", "site": 5}).startswith("r.toml: sink: unknown key 'site'")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "sink: the key 'dir' is missing"),
        ({"dir": "d", "age": "soon"}, "sink.age: not a duration: 'soon' (expected e.g. 500ms"),
        ({"dir": "d", "hosts": [1]}, "sink.hosts[0]: expected text, got an integer"),
        ({"dir": "d", "format": "xml"}, "sink.format: invalid value 'xml' (one of line, json)"),
        ({"dri": "d"}, "sink: unknown key 'dri'; did you mean 'dir'?"),
    ],
)
def test_wrong_option_is_named_by_key_path(options: dict[str, Any], message: str) -> None:
    assert wrong(options).startswith(f"r.toml: {message}")


def test_error_of_constructor_gets_key_path() -> None:
    """For rules that annotations cannot express."""
    from ccpipe.formats.lineprotocol.precision import check_precision

    class Strict:
        def __init__(self, *, lines: int, precision: str = "s") -> None:
            if lines < 0:
                raise ConfigError(f"lines is {lines}")
            check_precision(precision)

    assert wrong({"lines": -1}, Strict) == "r.toml: sink: lines is -1"
    message = wrong({"lines": 1, "precision": "min"}, Strict)
    assert message.startswith("r.toml: sink: precision is 'min', not one of")


def test_bug_in_class_is_not_configuration_error() -> None:
    class Broken:
        def __init__(self) -> None:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        construct(Broken, {}, context={}, **PLACE)


def test_any_kind_of_class_is_constructed() -> None:
    """Without a constructor, as a dataclass, or with ``**rest``, which takes no options."""

    class Bare:
        pass

    @dataclasses.dataclass
    class Data:
        lines: int = 3

    class Rest:
        def __init__(self, *more: int, dir: str = ".", **rest: str) -> None:  # noqa: A002
            self.dir = dir

    assert isinstance(construct(Bare, {}, context={}, **PLACE), Bare)
    assert construct(Data, {"lines": "5"}, context={}, **PLACE) == Data(5)
    assert construct(Rest, {"dir": "d"}, context={}, **PLACE).dir == "d"
    assert "unknown key 'rest'" in wrong({"rest": "x"}, Rest)
    assert "unknown key 'other'" in wrong({"other": "x"}, Rest)


def test_options_include_options_of_base_class() -> None:
    """``**options`` passes them on; the derived class decides on a default."""

    class Base:
        def __init__(self, *, url: str, lines: int = 1) -> None:
            self.url, self.lines = url, lines

    class Near(Base):
        def __init__(self, *, url: str = "here", age: float = 2, **options: Any) -> None:
            super().__init__(url=url, **options)

    class Alone(Base):
        def __init__(self, *, url: str = "here") -> None:
            super().__init__(url=url)

    made = construct(Near, {"lines": "3"}, context={}, **PLACE)
    assert (made.url, made.lines) == ("here", 3)
    assert options_of(Near).__struct_fields__ == ("url", "age", "lines")
    assert "unknown key 'lines'" in wrong({"lines": 3}, Alone)


def test_options_of_class_are_listed() -> None:
    fields = msgspec.structs.fields(options_of(Store, {"site": None, "telemetry": None}))
    assert {field.name for field in fields} == {"age", "dir", "format", "hosts", "lines", "size"}
    assert [field.name for field in fields if field.required] == ["dir"]


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "ccpipe_cool-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: ccpipe-cool\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(
        textwrap.dedent("""\
            [ccpipe.sinks]
            cool = ccpipe_cool_parts:Cool
            gone = ccpipe_cool_parts:Gone
            away = ccpipe_no_such_module:Cool
            poor = ccpipe_cool_poor:Poor
            [ccpipe.sources]
            cool = ccpipe_cool_parts:Cool
            """)
    )
    (tmp_path / "ccpipe_cool_parts.py").write_text(
        textwrap.dedent("""\
            from ccpipe import Lines, Sink
            class Cool(Sink):
                takes = Lines
                async def write(self, records): ...
                def __init__(self, *, level: int = 1, telemetry: object = None) -> None:
                    self.level, self.telemetry = level, telemetry
            """)
    )
    (tmp_path / "ccpipe_cool_poor.py").write_text(
        "from ccpipe.errors import MissingExtra\nraise MissingExtra('libcool', 'cool')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()


@pytest.mark.usefixtures("plugin")
def test_sink_of_other_package_is_constructed() -> None:
    """A package that is installed next to ccpipe is equal to the built-ins."""
    telemetry = Telemetry()
    context = {"site": None, "telemetry": telemetry}
    cool = build("sinks", {"use": "cool", "level": "3"}, context=context, **PLACE)
    assert type(cool).__module__ == "ccpipe_cool_parts"
    assert cool.level == 3
    assert cool.telemetry is telemetry
    assert "cool" in entry_points("sources")
    assert "cool" not in entry_points("translators")


@pytest.mark.usefixtures("plugin")
@pytest.mark.parametrize(
    ("use", "message"),
    [
        ("kool", "r.toml: sink.use: unknown sink 'kool'; did you mean 'cool'?"),
        ("gone", "r.toml: sink.use: 'gone': cannot load ccpipe_cool_parts:Gone: "),
        ("away", "r.toml: sink.use: 'away': cannot load ccpipe_no_such_module:Cool: No module"),
        (None, "r.toml: sink: the key 'use' must name one of away, "),
        (7, "r.toml: sink: the key 'use' must name one of away, "),
    ],
)
def test_missing_part_is_explained(use: object, message: str) -> None:
    """A wrong name gets the nearest, a broken package is distinguished from a missing one."""
    options = {} if use is None else {"use": use}
    with pytest.raises(ConfigError) as caught:
        build("sinks", options, context={}, **PLACE)
    assert str(caught.value).startswith(message)


@pytest.mark.usefixtures("plugin")
def test_missing_library_has_pip_command() -> None:
    with pytest.raises(MissingExtra, match=r"libcool .* pip install 'ccpipe\[cool\]'"):
        find("sinks", "poor", "r.toml")


def test_name_without_similar_one_gets_list() -> None:
    with pytest.raises(ConfigError, match="x: unknown source 'qqq'; known are .*nats"):
        find("sources", "qqq", "x")


@pytest.mark.parametrize("group", GROUPS)
def test_names_are_sorted(group: str) -> None:
    assert list(entry_points(group)) == sorted(entry_points(group)) != []
