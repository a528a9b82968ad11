"""Configuration: TOML, then the environment, then flags, into one Struct that knows every key.

A wrong key is fatal before anything starts, and the error names file, key path and the key that
was probably meant.
"""

import difflib
import os
import re
import socket
import tomllib
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ccpipe.errors import ConfigError

T = TypeVar("T")

ENVIRONMENT = "CCPIPE_"
"""Prefix of environment variables; ``__`` descends: ``CCPIPE_BUS__SERVERS=nats://a,nats://b``."""

_NOT_CONFIGURATION = {"CCPIPE_CONFIG", "CCPIPE_KERNEL"}


class Duration(float):
    """Seconds, written ``250ms``, ``10s``, ``5m``, ``2h``, ``1d`` or as a plain number."""

    __slots__ = ()
    UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "": 1}  # noqa: RUF012


class Size(int):
    """Bytes, written ``64KiB``, ``4MiB``, ``1GiB``, ``5MB`` or as a plain number."""

    __slots__ = ()
    UNITS = {  # noqa: RUF012
        "": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9,
        "KiB": 2**10, "MiB": 2**20, "GiB": 2**30,
    }  # fmt: skip


class Bus(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How to reach the broker. Secrets come from files only."""

    servers: list[str] = []
    """URLs such as ``nats://10.0.0.1:4222``; empty: a running ``ccpipe up``, else localhost."""
    user: str = ""
    password_file: str = ""
    credentials_file: str = ""
    """A ``.creds`` file (JWT and seed)."""
    nkey_file: str = ""
    """A file holding an nkey seed."""
    ca_file: str = ""
    """Certificate authority that signed the server's certificate, where it is a private one."""
    cert_file: str = ""
    key_file: str = ""
    jetstream: bool = True
    """Whether messages go through a JetStream stream (at least once) or core NATS (at most)."""
    subjects: dict[str, str] = {}
    """Subjects that differ from the specification's: see ``bus/subjects.py``."""
    stream_age: Duration = Duration(86400)
    """How long the stream keeps messages for bridges that are away."""
    stream_size: Size = Size(2**30)
    """Bytes that the stream keeps at most; beyond, the oldest go."""


class Publish(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a node says of itself, and how often."""

    interval: Duration = Duration(10)
    jitter: Duration = Duration(0.2)
    """Each sample is taken up to this much after its slot, so that nodes do not speak at once."""
    collectors: dict[str, dict[str, Any]] = {}
    """Options by collector; a collector's ``enabled = false`` leaves it out."""
    tags: dict[str, str] = {}
    """Tags that every metric carries beside ``cluster``, ``hostname`` and ``type``."""
    dead_file: str = ""
    """Where lines go that could not be delivered; empty: below the user's state folder."""


class TelemetryOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where ``/health /ready /metrics`` are answered."""

    listen: str = ""
    """``host:port``; empty: nowhere."""


class Batching(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How much a bridge gathers before it writes; what is absent is the sink's own choice."""

    lines: int | None = None
    bytes: Size | None = None
    age: Duration | None = None
    memory: Size | None = None


class Site(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The whole of ``ccpipe.toml``: what publisher, bridges and ``tail`` share."""

    cluster: str = "local"
    hostname: str = msgspec.field(default_factory=lambda: socket.gethostname().partition(".")[0])
    """This node's short name, as the tag ``hostname`` says it."""
    bus: Bus = Bus()
    publish: Publish = Publish()
    telemetry: TelemetryOptions = TelemetryOptions()


class Recipe(Site, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One bridge: a source, translators and a sink, beside what a site shares."""

    source: dict[str, Any]
    """``use`` names the source; the other keys are its options."""
    translate: list[dict[str, Any]] = []
    sink: dict[str, Any]
    batch: Batching = Batching()


def find_config() -> Path | None:
    """Return the first configuration file that is there: ``$CCPIPE_CONFIG``, user's, system's."""
    if named := os.environ.get("CCPIPE_CONFIG"):
        return Path(named)
    home = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    for path in (home / "ccpipe" / "ccpipe.toml", Path("/etc/ccpipe/ccpipe.toml")):
        if path.is_file():
            return path
    return None


def state_folder() -> Path:
    """Return the user's folder for data that outlives a run (XDG state home)."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "ccpipe"


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file; raises ConfigError naming file and place."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not TOML: {error}") from None


def load(
    path: Path | None,
    kind: type[T],
    *,
    flags: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    below: Mapping[str, Any] | None = None,
) -> T:
    """Build a Struct of `kind` from a file, the environment and `flags`, the later ones winning.

    `flags` are given by key path (``{"bus.servers": [...]}``); those that are None do not count.
    `below` is what the file builds on: a recipe builds on the site's configuration.

    Raises
    ------
    ConfigError
        naming file, key path and, for an unknown key, the one that was probably meant.

    """
    tree: dict[str, Any] = merge(dict(below or {}), read_toml(path) if path else {})
    environ = os.environ if environ is None else environ
    for name, text in environ.items():
        if name.startswith(ENVIRONMENT) and name not in _NOT_CONFIGURATION:
            path_in_tree = name.removeprefix(ENVIRONMENT).lower().split("__")
            is_list = typing.get_origin(_type_at(kind, path_in_tree)) is list
            plant(tree, path_in_tree, text.split(",") if is_list else text, name)
    for key, value in (flags or {}).items():
        if value is not None:
            plant(tree, key.split("."), value, key)
    return convert(tree, kind, str(path or "configuration"))


def merge(below: dict[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Lay one tree over another; tables merge, anything else is replaced."""
    for key, value in above.items():
        if isinstance(value, dict) and isinstance(below.get(key), dict):
            below[key] = merge(dict(below[key]), value)
        else:
            below[key] = value
    return below


def plant(tree: dict[str, Any], path: list[str], value: Any, name: str) -> None:
    """Set a value deep in a tree; raises ConfigError where a table is needed and none is."""
    *stems, leaf = path
    for stem in stems:
        tree[stem] = dict(tree.get(stem) or {})
        tree = tree[stem]
        if not isinstance(tree, dict):
            raise ConfigError(f"{name}: {stem} is not a table")
    tree[leaf] = value


def convert(tree: Any, kind: type[T], where: str, path: str = "") -> T:
    """Turn plain data into a Struct of `kind`; `where` and `path` begin an error's place."""
    try:
        return msgspec.convert(tree, kind, strict=False, dec_hook=_read_special)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}: {_explain(str(error), kind, path)}") from None


def _read_special(kind: type[Any], value: Any) -> Any:
    if kind in (Duration, Size):
        return _measure(kind, value)
    raise NotImplementedError(kind)


def _measure(kind: type[Duration] | type[Size], value: Any) -> Duration | Size:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return kind(value)
    found = re.fullmatch(r"([0-9.]+)\s*([A-Za-z]*)", str(value).strip())
    if not found or found[2] not in kind.UNITS:
        units = ", ".join(unit for unit in kind.UNITS if unit)
        raise ValueError(f"{value!r} is no {kind.__name__.lower()}: a number and one of {units}")
    try:
        return kind(float(found[1]) * kind.UNITS[found[2]])
    except ValueError:
        raise ValueError(f"{found[1]!r} is not a number") from None


def _explain(text: str, kind: Any, path: str) -> str:
    """Say where and why in the reader's words, with the key that was probably meant."""
    reason, _, place = text.partition(" - at `$")
    place = (path + place.rstrip("`")).lstrip(".") or "top level"
    unknown = re.search(r"unknown field `(.+)`", reason)
    if unknown is None:
        return f"{place}: {reason}"
    inside = place.removeprefix(path).strip(".") if place != "top level" else ""
    known = [f.encode_name for f in msgspec.structs.fields(_type_at(kind, inside.split(".")))]
    close = difflib.get_close_matches(unknown[1], known, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else f"; known are {', '.join(sorted(known))}"
    return f"{place}: unknown key {unknown[1]!r}{hint}"


def _type_at(kind: Any, path: Sequence[str]) -> Any:
    """Return the type that a Struct gives the value at a key path, or as far down as it knows."""
    for stem in filter(None, path):
        if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
            break
        kind = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}.get(stem)
    return kind
