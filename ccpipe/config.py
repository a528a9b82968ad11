"""Configuration: a TOML file, the environment and flags, merged into one Struct.

An unknown key or a bad value is an error before anything starts. The error names the file, the
key path and, for an unknown key, the most similar key.
"""

import contextlib
import difflib
import functools
import logging
import os
import re
import socket
import tomllib
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import urlsplit

import msgspec

from ccpipe.errors import ConfigError, MissingInputError
from ccpipe.renamed import KEYS

log = logging.getLogger(__name__)

T = TypeVar("T")

ENVIRONMENT = "CCPIPE_"
"""Prefix of environment variables; ``__`` enters a table: ``CCPIPE_BUS__SERVERS=nats://a,nats://b``."""

_NOT_CONFIGURATION = re.compile(
    r"CCPIPE_(?:CONFIG|KERNEL|LOGLEVEL|TESTS_STRICT"
    # what nats.conf reads
    r"|(?:NODE|BRIDGE|VIEWER|OPERATOR)_PASSWORD"
    # what Kubernetes sets in every pod beside a Service whose name begins with ccpipe
    r"|(?!.*__)(?:.+_)?(?:SERVICE_(?:HOST|PORT)(?:_.+)?|PORT(?:_[0-9]+_(?:TCP|UDP|SCTP)(?:_.+)?)?))"
)


class Duration(float):
    """Seconds, written ``250ms``, ``10s``, ``5m``, ``2h``, ``1d`` or as a plain number."""

    __slots__ = ()
    EXAMPLES = "500ms, 10s, 5m"
    UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "": 1}  # noqa: RUF012


class Interval(Duration):
    """A duration of more than 0."""

    __slots__ = ()


class Size(int):
    """Bytes, written ``64KiB``, ``4MiB``, ``1GiB``, ``5MB`` or as a plain number."""

    __slots__ = ()
    EXAMPLES = "64KiB, 4MiB, 1GiB"
    UNITS = {  # noqa: RUF012
        "": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9,
        "KiB": 2**10, "MiB": 2**20, "GiB": 2**30,
    }  # fmt: skip


class Bus(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How to reach the broker. Secrets are read from files only."""

    servers: list[str] = []
    """URLs such as ``nats://10.0.0.1:4222``; empty: a running ``ccpipe up``, else localhost."""
    user: str = ""
    """User name, where the broker asks for one."""
    password_file: str = ""
    """File that holds the user's password."""
    credentials_file: str = ""
    """A ``.creds`` file (JWT and seed)."""
    nkey_file: str = ""
    """File that holds an nkey seed."""
    ca_file: str = ""
    """Certificate authority of the server's certificate, where it is a private one."""
    cert_file: str = ""
    """Client certificate, where the server asks for one."""
    key_file: str = ""
    """Private key of the client certificate."""
    tls: Literal["auto", "require", "first"] = "auto"
    """``require`` sends nothing before TLS, not even credentials; ``first`` begins with TLS, for
    servers with ``handshake_first``; ``auto`` is ``require`` where a URL begins with ``tls://`` or
    ``ca_file`` or ``cert_file`` is set, else the server chooses."""
    jetstream: bool = True
    """Use a JetStream stream (delivery at least once) rather than core NATS (at most once)."""
    subjects: dict[str, str | dict[str, str]] = {}
    """Subjects that differ from the specification's; see ``docs/wire.md``."""
    stream_age: Duration = Duration(86400)
    """How long the stream keeps messages for bridges that are not running."""
    stream_size: Size = Size(2**30)
    """Maximum size of the stream; ``stream_discard`` says what happens when it is full."""
    stream_discard: Literal["old", "new"] = "old"
    """What a full stream does: ``old`` deletes the oldest messages, read or not; ``new`` refuses
    new messages, which publishers then hold as long as they can."""
    stream_replicas: Annotated[int, msgspec.Meta(ge=1, le=5)] = 1
    """Servers of a JetStream cluster that each store all messages; see ``docs/nats.md``."""
    stream_sources: list[str] = []
    """Where the stream gets its messages from: JetStream domains that have a stream of the same
    name, or ``domain/stream``. It then stores nothing that is published here."""
    stream_mirror: str = ""
    """Domain, or ``domain/stream``, of which the stream is an exact copy."""
    domain: str = ""
    """JetStream's domain, such as that of a leaf node; empty: the one that we are connected to."""
    stream_partitions: Annotated[int, msgspec.Meta(ge=1, le=256)] = 1
    """Parts of the stream that several bridges of one recipe share, each part read in order by one
    of them; see ``docs/scale.md``."""


class SonarOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Sonar's data about the node, published on ``<cluster>.sonar.*``."""

    sample: Duration = Duration(300)
    """Interval of ``sample`` data (processes, CPUs, GPUs); 0 disables it."""
    sysinfo: Duration = Duration(86400)
    """Interval of ``sysinfo`` data, which is also sent at the start; 0 disables it."""
    exclude_system_jobs: bool = True
    """Leave out processes of users with a uid below 1000."""
    exclude_users: list[str] = []
    """Users whose processes are left out."""
    exclude_commands: list[str] = []
    """Prefixes of the names of commands that are left out."""
    min_cpu_time: Duration = Duration(0)
    """Leave out processes that have used less CPU time than this."""
    rollup: bool = False
    """Merge similar processes of one job and parent into one entry."""
    pss: bool = False
    """Report memory as PSS, which needs root for processes of other users."""
    profile: Literal["spec", "sonar", "jobanalyzer", "slurm-monitor"] = "spec"
    """For whom envelopes are written: the specification's readers, or a program's."""


class ControlOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What can be read and set on this node over ``<cluster>.control.*``."""

    enabled: bool = True
    """Answer control requests."""
    put: list[Literal["interval", "freq", "nvml", "rapl"]] = []
    """What may be set; other PUT requests are answered with an error."""


class SpoolOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where messages wait on disk while the broker is away; see ``docs/node.md``."""

    enabled: bool = True
    """Keep messages on disk; else in memory only."""
    path: str = ""
    """File; default: ``spool.db`` in the state folder."""
    size: Size = Size(64 * 2**20)
    """Maximum size; when it is reached, the oldest metrics are dropped, events never."""
    age: Duration = Duration(86400)
    """How long metrics are kept."""
    rate: Annotated[int, msgspec.Meta(ge=1)] = 20
    """Messages per second that are published at most when the broker is back."""


class Publish(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a node publishes, and how often."""

    interval: Interval = Interval(10)
    """Time between two samples of a metric."""
    jitter: Duration | None = None
    """Maximum random delay of each sample, so that nodes do not all publish at once; if absent,
    a fiftieth of the interval."""
    collectors: dict[str, dict[str, Any]] = {}
    """Options of each collector; ``enabled = false`` disables it, ``interval`` overrides the
    interval."""
    units: bool = False
    """Add the tag ``unit`` to metrics."""
    translate: list[dict[str, Any]] = []
    """Translators for the metrics, in this order, as in a recipe; ``use`` names each."""
    sonar: SonarOptions = SonarOptions()
    control: ControlOptions = ControlOptions()
    spool: SpoolOptions = SpoolOptions()
    log: Literal["debug", "info", "warn", "error", "off"] = "info"
    """Minimum level at which the publisher's own log is published on ``<cluster>.log.ccpipe``."""
    tags: dict[str, str] = {}
    """Tags added to every metric, besides ``cluster``, ``hostname`` and ``type``."""
    profile: Literal["none", "clustercockpit"] = "none"
    """For whom metrics are published: ``clustercockpit`` sends what cc-metric-store can store; see
    ``docs/clustercockpit.md``."""
    precision: Literal["auto", "s", "ms", "us", "ns"] = "auto"
    """Unit of the timestamps of metrics; ``auto`` is the largest that is exact, and ``s`` with the
    profile ``clustercockpit``."""
    dead_letter_file: str = ""
    """File for lines that could not be delivered; default: ``dead.lp`` in the state folder."""


class TelemetryOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where ``/health``, ``/ready`` and ``/metrics`` are served."""

    listen: str = ""
    """``host:port``; empty disables the server."""


class Batching(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How much a bridge collects before it writes; what is absent is up to the sink."""

    lines: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """Maximum number of records in one write."""
    bytes: Size | None = None
    """Maximum size of the records of one write, in memory."""
    age: Duration | None = None
    """Maximum time that a record waits for others."""
    timeout: Duration | None = None
    """Maximum time that a write may take; then it is tried again with half of the records."""
    memory: Size | None = None
    """Maximum size of all records in memory; when it is reached, the source is not read."""


class Site(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The contents of ``ccpipe.toml``, which all commands share."""

    cluster: Annotated[str, msgspec.Meta(min_length=1)] = "local"
    """Name of the cluster, in the tag ``cluster`` and in subjects."""
    hostname: Annotated[str, msgspec.Meta(min_length=1)] = msgspec.field(
        default_factory=lambda: socket.gethostname().partition(".")[0]
    )
    """Short name of this node, in the tag ``hostname``."""
    bus: Bus = Bus()
    publish: Publish = Publish()
    telemetry: TelemetryOptions = TelemetryOptions()


class Recipe(Site, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One bridge: a source, translators and a sink, in addition to the keys of a site."""

    source: dict[str, Any]
    """``use`` names the source; the other keys are its options."""
    translate: list[dict[str, Any]] = []
    """Translators in the order in which they are applied; ``use`` names each."""
    sink: dict[str, Any]
    """``use`` names the sink; the other keys are its options."""
    batch: Batching = Batching()


def find_config() -> Path | None:
    """Return the configuration file: ``$CCPIPE_CONFIG``, else the user's, else the system's."""
    if named := os.environ.get("CCPIPE_CONFIG"):
        return Path(named)
    home = Path(os.environ.get("XDG_CONFIG_HOME") or _home() / ".config")
    for path in (home / "ccpipe" / "ccpipe.toml", Path("/etc/ccpipe/ccpipe.toml")):
        if path.is_file():
            return path
    return None


def state_folder() -> Path:
    """Return the user's folder for persistent data (XDG state home)."""
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
    secret = read_text(option, path).strip()
    if not secret or not secret.isprintable():
        raise ConfigError(f"{option}: {path} does not hold one line of text")
    return secret


def read_text(option: str, path: str) -> str:
    """Read the file that an option names; raises ConfigError naming the option."""
    try:
        return Path(path).expanduser().read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{option}: {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{option}: {path}: {error}") from None


def listen_address(option: str, listen: str) -> tuple[str, int]:
    """Return host and port of ``host:port``; raises ConfigError naming the option."""
    try:
        address = urlsplit(f"//{listen}")
        if address.port is None or address.path or not address.hostname:
            raise ValueError("expected an address and a port, as in 127.0.0.1:9401")
    except ValueError as error:
        raise ConfigError(f"{option}: {listen!r}: {error}") from None
    return address.hostname, address.port


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file.

    Raises
    ------
    MissingInputError
        where it cannot be opened.
    ConfigError
        naming file and place, where it is not TOML.

    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise MissingInputError(f"{path}: {error.strerror}") from None
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
    """Build a Struct of `kind` from a file, the environment and `flags`; later ones override.

    `flags` are given by key path (``{"bus.servers": [...]}``); None means not given. `below` is
    what the file extends: a recipe extends the site's configuration.

    Raises
    ------
    ConfigError
        naming file, key path and, for an unknown key, the most similar one.

    """
    tree: dict[str, Any] = merge(dict(below or {}), read_toml(path) if path else {})
    origins: dict[str, str] = {}  # of what does not come from the file
    for name, stems, text in _variables(os.environ if environ is None else environ):
        if stems[0] in _fields(kind) or stems[0] not in _fields(Recipe):
            set_at_path(tree, stems, split(text, _type_at(kind, stems)), name)
            origins[".".join(stems)] = name
    for key, value in (flags or {}).items():
        if value is not None:
            set_at_path(tree, key.split("."), value, key)
            origins[key] = "command line"
    return convert(tree, kind, str(path or "configuration"), origins=origins)


def _variables(environ: Mapping[str, str]) -> Iterator[tuple[str, list[str], str]]:
    """Yield the variables that are settings: name, key path and value.

    A site may have variables of its own that begin with ``CCPIPE_``; they are reported once. One
    that contains ``__`` or resembles a setting is a setting, so that a typo is still an error.
    """
    for name, text in environ.items():
        if not name.startswith(ENVIRONMENT) or _NOT_CONFIGURATION.fullmatch(name):
            continue
        stems = name.removeprefix(ENVIRONMENT).lower().split("__")
        if len(stems) == 1 and stems[0] not in _fields(Recipe):
            if meant := _similar_setting(stems[0]):
                raise ConfigError(f"{name}: unknown setting; did you mean {meant}?")
            _report_unknown(name)
        else:
            yield name, stems, text


def _similar_setting(stem: str) -> str | None:
    """Return the variable that was probably meant by ``CCPIPE_<stem>``."""
    for table in ("source", "sink"):  # their keys depend on the part
        if stem.startswith(f"{table}_"):
            return f"{ENVIRONMENT}{table}__{stem.removeprefix(f'{table}_')}".upper()
    paths = {"_".join(path): path for path in _key_paths(Recipe)}
    close = difflib.get_close_matches(stem, paths, n=1, cutoff=0.75)
    return f"{ENVIRONMENT}{'__'.join(paths[close[0]])}".upper() if close else None


def _key_paths(
    kind: type[msgspec.Struct], above: tuple[str, ...] = ()
) -> Iterator[tuple[str, ...]]:
    for key, inner in _fields(kind).items():
        if isinstance(inner, type) and issubclass(inner, msgspec.Struct):
            yield from _key_paths(inner, (*above, key))
        else:
            yield *above, key


@functools.cache
def _report_unknown(name: str) -> None:
    log.warning("%s is not a setting and is ignored; `ccpipe config show` lists settings", name)


def split(text: Any, kind: Any) -> Any:
    """Make a list of text: environment variables hold only text.

    Text is split at commas where a list is expected. Where the type depends on a part, such as for
    options of a sink, a list is written as in TOML: ``["a:1", "b:2"]``.
    """
    if isinstance(text, str) and typing.get_origin(_bare(kind)) is list:
        return [part.strip() for part in text.split(",") if part.strip()]
    if isinstance(text, str) and kind is Any and text.startswith("["):
        with contextlib.suppress(ValueError):  # else it is text that begins with a bracket
            return tomllib.loads(f"list = {text}")["list"]
    return text


def merge(below: dict[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Merge `above` into `below`: tables are merged, other values replaced."""
    for key, value in above.items():
        if isinstance(value, dict) and isinstance(below.get(key), dict):
            below[key] = merge(dict(below[key]), value)
        else:
            below[key] = value
    return below


def set_at_path(tree: dict[str, Any], path: list[str], value: Any, name: str) -> None:
    """Set a value at a key path; raises ConfigError where something on the path is not a table."""
    *stems, leaf = path
    for stem in stems:
        below = tree.get(stem, {})
        if not isinstance(below, Mapping):
            raise ConfigError(f"{name}: {stem} is not a table")
        tree[stem] = dict(below)
        tree = tree[stem]
    tree[leaf] = value


def convert(
    tree: Any, kind: type[T], where: str, path: str = "", origins: Mapping[str, str] | None = None
) -> T:
    """Turn plain data into a Struct of `kind`.

    Errors begin with `where`, or with the value in `origins` for that key path, and `path`.

    Raises
    ------
    ConfigError
        naming the key path and, for an unknown key, the most similar one.

    """
    try:
        return msgspec.convert(tree, kind, strict=False, dec_hook=_read_special)
    except UnicodeEncodeError as error:
        raise ConfigError(f"{where}: {error.object!r} is not UTF-8") from None
    except msgspec.ValidationError as error:
        place, reason, culprit = _explain(str(error), tree, kind)
        for key, name in (origins or {}).items():
            if f"{culprit}.".startswith((f"{key}.", f"{key}[")) or key.startswith(f"{culprit}."):
                where = name
        place = ".".join(filter(None, (path, place))) or "top level"
        raise ConfigError(f"{where}: {place}: {reason}") from None


def _read_special(kind: type[Any], value: Any) -> Any:
    if issubclass(kind, Duration | Size):
        return _measure(kind, value)
    if kind is Path and isinstance(value, str):
        return Path(value)
    raise ValueError(f"not a {kind.__name__}: {value!r:.80}")


_MEASURE = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)\s*([A-Za-z]*)")


def _measure(kind: type[Duration | Size], value: Any) -> Duration | Size:
    what = "an interval" if kind is Interval else f"a {kind.__name__.lower()}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        found = _MEASURE.fullmatch(str(value).strip())
        if not found or found[2] not in kind.UNITS:
            raise ValueError(f"not {what}: {value!r:.80} (expected e.g. {kind.EXAMPLES})")
        value = float(found[1]) * kind.UNITS[found[2]]
    if not 0 <= value < _LIMIT or (value == 0 and kind is Interval):
        minimum = "more than" if kind is Interval else "at least"
        raise ValueError(f"not {what}: {value!r:.80} (must be {minimum} 0 and finite)")
    return kind(value)


_LIMIT = 2**63  # of what brokers and databases count with


def _explain(text: str, tree: Any, kind: Any) -> tuple[str, str, str]:
    """Return the place, the reason and the key path of an error of msgspec."""
    found = re.fullmatch(r"(.*) - at `\$(.*)`", text, re.DOTALL)
    reason, place = found.groups() if found else (text, "")
    place, kind = _follow(place, tree, kind)
    key = re.search(r"(?:unknown|missing required) field `(.*)`", reason, re.DOTALL)
    if key is None:
        return place, reason.replace("object`", "table`"), place
    culprit = ".".join(filter(None, (place, key[1])))
    if "missing" in reason:
        return place, f"the key {key[1]!r} is missing", culprit
    if culprit in KEYS:
        return place, f"the key {key[1]!r} was replaced by {KEYS[culprit]}", culprit
    known = sorted(_fields(kind))
    close = difflib.get_close_matches(key[1], known, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}"
    return place, f"unknown key {key[1]!r}; {hint}", culprit


def _follow(place: str, tree: Any, kind: Any) -> tuple[str, Any]:
    """Resolve msgspec's path to the type there; fill in the keys that it writes as ``[...]``."""
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
    """Return the declared type of the value at a key path; Any where there is none."""
    return functools.reduce(_inside, path, kind)


def _inside(kind: Any, step: str) -> Any:
    """Return the type of an element or field of a Struct, dict or list."""
    kind = _bare(kind)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _fields(kind).get(step, Any)
    return (Any, *typing.get_args(kind))[-1]


def _bare(kind: Any) -> Any:
    """Return a type without its annotations and without ``| None``."""
    while typing.get_origin(kind) in (Annotated, typing.Union, types.UnionType):
        kind = next(choice for choice in typing.get_args(kind) if choice is not types.NoneType)
    return kind


def _fields(kind: Any) -> dict[str, Any]:
    return {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
