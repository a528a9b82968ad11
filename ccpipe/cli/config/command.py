"""``ccpipe config``: the effective configuration, and the origin of each value."""

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from cyclopts import App, Parameter

from ccpipe.cli.console.options import SiteOptions
from ccpipe.cli.console.output import print_json
from ccpipe.config import ENVIRONMENT, mask, plain, read_toml, set_at_path

config = App(
    name="config",
    help="""Show the effective configuration, or generate it for other programs.

Sources of values are defaults, a TOML file, environment variables
(CCPIPE_BUS__SERVERS=nats://a,nats://b sets servers in [bus]) and flags; later
ones override earlier ones. The file is given by --config or $CCPIPE_CONFIG; the default is
~/.config/ccpipe/ccpipe.toml, then /etc/ccpipe/ccpipe.toml.

Examples: ccpipe config show
          CCPIPE_CLUSTER=fritz ccpipe config show | grep cluster
          ccpipe config clustercockpit | jq .metricConfig""",
)
config.command("ccpipe.cli.config.clustercockpit:clustercockpit", name="clustercockpit")


class Setting(NamedTuple):
    """A setting with its effective value."""

    path: tuple[str, ...]
    value: Any
    origin: str


@config.command
def show(
    *,
    where: SiteOptions = SiteOptions(),
    output: Annotated[Literal["toml", "json"], Parameter(alias="-o")] = "toml",
) -> None:
    """Show every setting, with the origin of its value in a comment.

    The output can be used as ccpipe.toml, except that passwords in server URLs
    are masked. Other secrets are in files; only the file names are settings.

    Examples: ccpipe config show
              ccpipe config show --server nats://10.0.0.1:4222
              ccpipe config show -o json | jq '.origins["bus.servers"]'

    Parameters
    ----------
    output
        Output format.
    """
    file = where.path()
    found = list(settings(where, file))
    if output == "json":
        print_json(
            {
                "file": str(file) if file else None,
                "configuration": tree(found),
                "origins": {".".join(s.path): s.origin for s in found},
            }
        )
    else:
        print("\n".join(write_toml(found)))


def settings(where: SiteOptions, file: Path | None) -> Iterator[Setting]:
    names = {
        tuple(name.removeprefix(ENVIRONMENT).lower().split("__")): name
        for name in os.environ
        if name.startswith(ENVIRONMENT)
    }
    flags = {tuple(key.split(".")) for key, value in where.flags().items() if value is not None}
    written = {path for path, _ in leaves(read_toml(file))} if file else set()
    for path, value in leaves(plain(where.site())):
        if path in flags:
            origin = "flag"
        elif path in names:
            origin = f"environment {names[path]}"
        elif path in written:
            origin = f"file {file}"
        else:
            origin = "default"
        yield Setting(path, mask(value, path[-1]), origin)


def leaves(
    tree: Mapping[str, Any], above: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield all values of a tree that are not tables, and empty tables, with key paths."""
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, (*above, key))
        else:
            yield (*above, key), value


def tree(settings: Iterable[Setting]) -> dict[str, Any]:
    whole: dict[str, Any] = {}
    for setting in settings:
        set_at_path(whole, list(setting.path), setting.value, ".".join(setting.path))
    return whole


def write_toml(settings: Iterable[Setting]) -> Iterator[str]:
    """Write settings as the lines of a TOML file, each with its origin as a comment."""
    tables: dict[tuple[str, ...], list[tuple[str, str]]] = {}
    for path, value, origin in settings:
        key = _key(path[-1])
        line = f"# {key} is not set" if value is None else f"{key} = {_toml(value)}"
        tables.setdefault(path[:-1], []).append((line, origin))
    for path in sorted(tables):
        if path:
            yield ""
            yield f"[{'.'.join(map(_key, path))}]"
        for line, origin in tables[path]:
            yield f"{line:<40}  # {origin}"


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _toml(name)


def _toml(value: Any) -> str:
    """Write a value; TOML strings are JSON strings except for one character."""
    match value:
        case Mapping():
            inside = ", ".join(f"{_key(key)} = {_toml(item)}" for key, item in value.items())
            return f"{{ {inside} }}" if inside else "{}"
        case list():
            return f"[{', '.join(map(_toml, value))}]"
        case str():
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case _:
            return json.dumps(value)
