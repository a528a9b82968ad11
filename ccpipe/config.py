"""Configuration: TOML, then the environment, then flags, into one Struct that knows every key.

A wrong key is fatal before anything starts, and the error names file, key path and the key that
was probably meant.
"""

import difflib
import functools
import os
import re
import socket
import tomllib
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from ccpipe.errors import ConfigError

T = TypeVar("T")

ENVIRONMENT = "CCPIPE_"
"""Prefix of environment variables; ``__`` descends: ``CCPIPE_BUS__SERVERS=nats://a,nats://b``."""

_NOT_CONFIGURATION = re.compile(
    r"CCPIPE_(?:CONFIG|KERNEL|LOGLEVEL|TESTS_STRICT"
    # what Kubernetes tells every pod beside a Service whose name begins with ccpipe
    r"|(?!.*__)(?:.+_)?(?:SERVICE_(?:HOST|PORT)(?:_.+)?|PORT(?:_[0-9]+_(?:TCP|UDP|SCTP)(?:_.+)?)?))"
)


class Duration(float):
    """Seconds, written ``250ms``, ``10s``, ``5m``, ``2h``, ``1d`` or as a plain number."""

    __slots__ = ()
    UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "": 1}  # noqa: RUF012


class Interval(Duration):
    """Time between two moments: a duration that is more than nothing."""

    __slots__ = ()


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
    """Name to log in with, where the broker asks for one."""
    password_file: str = ""
    """A file holding that user's password."""
    credentials_file: str = ""
    """A ``.creds`` file (JWT and seed)."""
    nkey_file: str = ""
    """A file holding an nkey seed."""
    ca_file: str = ""
    """Certificate authority that signed the server's certificate, where it is a private one."""
    cert_file: str = ""
    """Our own certificate, where the server asks for one."""
    key_file: str = ""
    """The private key of that certificate."""
    jetstream: bool = True
    """Whether messages go through a JetStream stream (at least once) or core NATS (at most)."""
    subjects: dict[str, str] = {}
    """Subjects that differ from the specification's: see ``bus/subjects.py``."""
    stream_age: Duration = Duration(86400)
    """How long the stream keeps messages for bridges that are away."""
    stream_size: Size = Size(2**30)
    """Bytes that the stream keeps at most; beyond, the oldest go."""


class SonarOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a node says of itself as Sonar's daemon does, on ``<cluster>.sonar.*``."""

    sample: Duration = Duration(300)
    """Time between two samples of processes, processors and cards; 0: none are sent."""
    sysinfo: Duration = Duration(86400)
    """Time between two descriptions of the node, beside the one at the start; 0: none are sent."""
    exclude_system_jobs: bool = True
    """Whether processes of users with a number below 1000 are left out."""
    exclude_users: list[str] = []
    """Users whose processes are left out."""
    exclude_commands: list[str] = []
    """Beginnings of the names of commands that are left out."""
    min_cpu_time: Duration = Duration(0)
    """Processes that used less processor time than this so far are left out."""
    rollup: bool = False
    """Whether alike processes of one job and parent are told of as one."""
    pss: bool = False
    """Whether memory is the proportional share (PSS), which only root may read of others."""


class ControlOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What others may ask this node, and set on it, over ``<cluster>.control.*``."""

    enabled: bool = True
    """Whether requests are answered at all."""
    put: list[Literal["interval", "freq", "nvml", "rapl"]] = []
    """What may be set; everything else is refused, with an answer that says so."""


class Publish(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a node says of itself, and how often."""

    interval: Interval = Interval(10)
    """Time between two samples of a metric."""
    jitter: Duration | None = None
    """Each sample is taken up to this much after its slot, so that nodes do not speak at once;
    absent: a fiftieth of the interval."""
    collectors: dict[str, dict[str, Any]] = {}
    """Options by collector; ``enabled = false`` leaves one out, ``interval`` gives it its own."""
    units: bool = False
    """Whether a metric carries its unit as the tag ``unit``."""
    translate: list[dict[str, Any]] = []
    """Translators that metrics pass in this order, as in a recipe; ``use`` names each."""
    sonar: SonarOptions = SonarOptions()
    control: ControlOptions = ControlOptions()
    log: Literal["debug", "info", "warn", "error", "off"] = "info"
    """From which level on the publisher's own log goes to ``<cluster>.log.ccpipe`` too."""
    tags: dict[str, str] = {}
    """Tags that every metric carries beside ``cluster``, ``hostname`` and ``type``."""
    dead_letter_file: str = ""
    """Where lines go that could not be delivered; empty: below the user's state folder."""


class TelemetryOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where ``/health /ready /metrics`` are answered."""

    listen: str = ""
    """``host:port``; empty: nowhere."""


class Batching(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How much a bridge gathers before it writes; what is absent is the sink's own choice."""

    lines: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """Records in one write."""
    bytes: Size | None = None
    """What the records of one write take in memory, roughly."""
    age: Duration | None = None
    """How long the oldest record waits at most."""
    memory: Size | None = None
    """Held at most, written or not: beyond, the source is not read."""


class Site(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The whole of ``ccpipe.toml``: what publisher, bridges and ``tail`` share."""

    cluster: Annotated[str, msgspec.Meta(min_length=1)] = "local"
    """Name of the cluster, as the tag ``cluster`` and the subjects say it."""
    hostname: Annotated[str, msgspec.Meta(min_length=1)] = msgspec.field(
        default_factory=lambda: socket.gethostname().partition(".")[0]
    )
    """This node's short name, as the tag ``hostname`` says it."""
    bus: Bus = Bus()
    publish: Publish = Publish()
    telemetry: TelemetryOptions = TelemetryOptions()


class Recipe(Site, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One bridge: a source, translators and a sink, beside what a site shares."""

    source: dict[str, Any]
    """``use`` names the source; the other keys are its options."""
    translate: list[dict[str, Any]] = []
    """Translators in the order that records pass them; each names itself with ``use``."""
    sink: dict[str, Any]
    """``use`` names the sink; the other keys are its options."""
    batch: Batching = Batching()


def find_config() -> Path | None:
    """Return the first configuration file that is there: ``$CCPIPE_CONFIG``, user's, system's."""
    if named := os.environ.get("CCPIPE_CONFIG"):
        return Path(named)
    home = Path(os.environ.get("XDG_CONFIG_HOME") or _home() / ".config")
    for path in (home / "ccpipe" / "ccpipe.toml", Path("/etc/ccpipe/ccpipe.toml")):
        if path.is_file():
            return path
    return None


def state_folder() -> Path:
    """Return the user's folder for data that outlives a run (XDG state home)."""
    return Path(os.environ.get("XDG_STATE_HOME") or _home() / ".local" / "state") / "ccpipe"


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError:  # a container's user need not have one
        return Path("/")


def read_secret(option: str, path: str) -> str:
    """Read a secret from its file, without the line end; raises ConfigError naming the option."""
    if not path:
        raise ConfigError(f"{option}: is missing")
    try:
        secret = Path(path).expanduser().read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{option}: {path}: {error}") from None
    if not secret or not secret.isprintable():
        raise ConfigError(f"{option}: {path} does not hold one line of text")
    return secret


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file; raises ConfigError naming file and place."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:  # of syntax, UTF-8, endless digits or depth
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
    planted: dict[str, str] = {}  # who set what beside the file
    environ = os.environ if environ is None else environ
    for name, text in environ.items():
        if name.startswith(ENVIRONMENT) and not _NOT_CONFIGURATION.fullmatch(name):
            stems = name.removeprefix(ENVIRONMENT).lower().split("__")
            set_at_path(tree, stems, split(text, _type_at(kind, stems)), name)
            planted[".".join(stems)] = name
    for key, value in (flags or {}).items():
        if value is not None:
            set_at_path(tree, key.split("."), value, key)
            planted[key] = "command line"
    return convert(tree, kind, str(path or "configuration"), planted=planted)


def split(text: Any, kind: Any) -> Any:
    """Split text at its commas where a list is wanted, as the environment has only text."""
    if isinstance(text, str) and typing.get_origin(_bare(kind)) is list:
        return [part.strip() for part in text.split(",") if part.strip()]
    return text


def merge(below: dict[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Lay one tree over another; tables merge, anything else is replaced."""
    for key, value in above.items():
        if isinstance(value, dict) and isinstance(below.get(key), dict):
            below[key] = merge(dict(below[key]), value)
        else:
            below[key] = value
    return below


def set_at_path(tree: dict[str, Any], path: list[str], value: Any, name: str) -> None:
    """Set a value deep in a tree; raises ConfigError where a table is needed and none is."""
    *stems, leaf = path
    for stem in stems:
        below = tree.get(stem, {})
        if not isinstance(below, Mapping):
            raise ConfigError(f"{name}: {stem} is not a table")
        tree[stem] = dict(below)
        tree = tree[stem]
    tree[leaf] = value


def convert(
    tree: Any, kind: type[T], where: str, path: str = "", planted: Mapping[str, str] | None = None
) -> T:
    """Turn plain data into a Struct of `kind`.

    `where` and `path` begin an error's place; key paths that are `planted` come from elsewhere.

    Raises
    ------
    ConfigError
        naming that place and, for an unknown key, the one that was probably meant.

    """
    try:
        return msgspec.convert(tree, kind, strict=False, dec_hook=_read_special)
    except UnicodeEncodeError as error:
        raise ConfigError(f"{where}: {error.object!r} is not UTF-8") from None
    except msgspec.ValidationError as error:
        place, reason, culprit = _explain(str(error), tree, kind)
        for key, name in (planted or {}).items():
            if culprit == key or culprit.startswith((f"{key}.", f"{key}[")):
                where = name
        place = ".".join(filter(None, (path, place))) or "top level"
        raise ConfigError(f"{where}: {place}: {reason}") from None


def _read_special(kind: type[Any], value: Any) -> Any:
    if issubclass(kind, Duration | Size):
        return _measure(kind, value)
    if kind is Path and isinstance(value, str):
        return Path(value)
    raise ValueError(f"{value!r:.80} is no {kind.__name__}")


_MEASURE = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)\s*([A-Za-z]*)")


def _measure(kind: type[Duration | Size], value: Any) -> Duration | Size:
    name = kind.__name__.lower()
    if isinstance(value, bool) or not isinstance(value, int | float):
        found = _MEASURE.fullmatch(str(value).strip())
        if not found or found[2] not in kind.UNITS:
            units = ", ".join(unit for unit in kind.UNITS if unit)
            raise ValueError(f"{value!r:.80} is no {name}: a number and one of {units}")
        value = float(found[1]) * kind.UNITS[found[2]]
    if not 0 <= value < _LIMIT or (value == 0 and kind is Interval):
        minimum = "more than" if kind is Interval else "at least"
        raise ValueError(f"{value!r:.80} is no {name}: it must be {minimum} 0 and finite")
    return kind(value)


_LIMIT = 2**63  # of what brokers and databases count with


def _explain(text: str, tree: Any, kind: Any) -> tuple[str, str, str]:
    """Return where, why and the key path to blame, in the reader's words."""
    found = re.fullmatch(r"(.*) - at `\$(.*)`", text, re.DOTALL)
    reason, place = found.groups() if found else (text, "")
    place, kind = _follow(place, tree, kind)
    key = re.search(r"(?:unknown|missing required) field `(.*)`", reason, re.DOTALL)
    if key is None:
        return place, reason.replace("`object`", "`table`"), place
    culprit = ".".join(filter(None, (place, key[1])))
    if "missing" in reason:
        return place, f"the key {key[1]!r} is missing", culprit
    known = sorted(_fields(kind))
    close = difflib.get_close_matches(key[1], known, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}"
    return place, f"unknown key {key[1]!r}; {hint}", culprit


def _follow(place: str, tree: Any, kind: Any) -> tuple[str, Any]:
    """Follow msgspec's path to the type it leads to; name the keys that it leaves as ``[...]``."""
    named = ""
    for step in re.findall(r"[^.\[]+|\[[^\]]*\]", place):
        kind = _inside(kind, step)
        if step == "[...]":
            key: Any = next(key for key in tree if not _fits(tree[key], kind))
        else:
            key = int(step[1:-1]) if step[0] == "[" else step
        named += step if isinstance(key, int) else f".{key}"
        tree = tree[key]
    return named.removeprefix("."), _bare(kind)


def _fits(value: Any, kind: Any) -> bool:
    try:
        msgspec.convert(value, kind, strict=False, dec_hook=_read_special)
    except msgspec.ValidationError:
        return False
    return True


def _type_at(kind: Any, path: Sequence[str]) -> Any:
    """Return the type that a Struct gives the value at a key path; Any where it does not say."""
    return functools.reduce(_inside, path, kind)


def _inside(kind: Any, step: str) -> Any:
    """Return the type of what lies one step inside a Struct, a dict or a list."""
    kind = _bare(kind)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _fields(kind).get(step, Any)
    return (Any, *typing.get_args(kind))[-1]


def _bare(kind: Any) -> Any:
    """Return a type without what is annotated to it and without None beside it."""
    while typing.get_origin(kind) in (Annotated, typing.Union, types.UnionType):
        kind = next(choice for choice in typing.get_args(kind) if choice is not types.NoneType)
    return kind


def _fields(kind: Any) -> dict[str, Any]:
    return {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
