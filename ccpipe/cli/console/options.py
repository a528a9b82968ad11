"""Options that commands share: each is declared once, here.

A command takes a class of options as one argument; its attributes are options of the command, their
docstrings the help. ``--help`` reads them too, so what loads the configuration is imported where it
is used: it takes a third of the time of a help text.
"""

import contextlib
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote, urlsplit, urlunsplit

from cyclopts import Parameter

from ccpipe.errors import ConfigError, DataError, MissingInputError, UsageError
from ccpipe.formats.nodelist import expand

if TYPE_CHECKING:
    from ccpipe.config import Duration, Interval, Site

On = Annotated[bool, Parameter(negative_bool="no-")]
"""A flag that is on unless ``--no-…`` turns it off; other flags have no negation."""

DURATION = Parameter(metavar="DURATION")
TIME = Parameter(metavar="TIME")
URL = Parameter(metavar="URL")
NODES = Parameter(metavar="NODES")

ExitAfter = Annotated[
    str | None, DURATION, Parameter(name="--for", help="Exit after this time, such as 30s.")
]
Since = Annotated[str | None, TIME]
Until = Annotated[str | None, TIME]
Lenient = Annotated[bool, Parameter(help="Accept known deviations from the grammar.")]
Rate = Annotated[int, Parameter(help="Maximum lines per second; 0 for no limit.")]
Count = Annotated[int | None, Parameter(alias="-n")]
Nodes = Annotated[
    list[str] | None,
    NODES,
    Parameter(alias="-N", help="Nodes or node lists such as f[01-88]; can be repeated."),
]

MAX_PORT = 65535
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def refuse_options(words: Iterable[object]) -> None:
    """Raise UsageError for an argument that is a misspelt option, not a file; ``-`` is stdin."""
    for word in map(str, words):
        if word.startswith("-") and word != "-":
            raise UsageError(f"unknown option {word}; a file of that name is ./{word}")


def expand_nodes(texts: Iterable[str] | None) -> list[str]:
    """Return the names of all values of ``--node``; raises UsageError for a bad node list."""
    names: list[str] = []
    for text in texts or ():
        try:
            names += expand(text)
        except DataError as error:
            raise UsageError(f"--node {text}: {error}") from None
    return list(dict.fromkeys(names))


def expand_patterns(texts: Iterable[str] | None) -> list[str]:
    """Do the same for values that may also be patterns with ``*``, ``?`` or ``[abc]``."""
    found: list[str] = []
    for text in texts or ():
        is_pattern = re.search(r"[*?]|\[[^]0-9]", text)
        found += [text] if is_pattern else expand_nodes([text])
    return found


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class LogOptions:
    """How much a command logs."""

    verbose: Annotated[bool, Parameter(alias="-v")] = False
    """Log debugging messages as well."""

    quiet: Annotated[bool, Parameter(alias="-q")] = False
    """Log only warnings and errors."""

    def level(self) -> str | None:
        """Return the level of the log; None if it is not given here."""
        if self.verbose and self.quiet:
            raise UsageError("--verbose and --quiet exclude each other")
        return "DEBUG" if self.verbose else "WARNING" if self.quiet else None


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ConfigOptions:
    """The configuration that a command uses."""

    config: Path | None = None
    """Configuration file; default: $CCPIPE_CONFIG, the user's or the system's ccpipe.toml."""

    def path(self) -> Path | None:
        """Return the configuration file in use, if there is one."""
        from ccpipe.config import find_config

        return self.config or find_config()

    def flags(self) -> dict[str, Any]:
        """Return what these options override, by key path, for ``config.load``."""
        return {}

    def site(self, **more: Any) -> "Site":
        """Load the configuration, overridden by these options and by `more`, by key path."""
        from ccpipe.bus.subjects import Subjects
        from ccpipe.config import Site, load

        site = load(self.path(), Site, flags={**self.flags(), **more})
        Subjects.of(site)  # raises ConfigError for an invalid template
        return site


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ClusterOptions(ConfigOptions):
    """The configuration and the cluster that a command uses."""

    cluster: str | None = None
    """Name of the cluster."""

    def flags(self) -> dict[str, Any]:
        return {**super().flags(), "cluster": self.cluster}


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class BrokerOptions(ConfigOptions):
    """The configuration and the broker that a command uses, and how it logs in."""

    server: Annotated[str | None, URL] = None
    """The NATS server, such as nats://127.0.0.1:4222; comma-separated if several."""

    nats_user: str | None = None
    """User name at the server."""

    password_file: Path | None = None
    """File with the password of that user."""

    creds: Path | None = None
    """File with credentials (JWT and seed)."""

    context: str | None = None
    """Context of the program nats that names server and credentials; an empty text is the
    selected one."""

    log: LogOptions = LogOptions()

    def flags(self) -> dict[str, Any]:
        """Return the overridden settings: of these options, then of the NATS context."""
        context = read_context(self.context) if self.context is not None else {}
        given = {
            "bus.servers": read_servers(self.server) if self.server else None,
            "bus.user": self.nats_user,
            "bus.password_file": self.password_file and str(self.password_file),
            "bus.credentials_file": self.creds and str(self.creds),
        }
        given = {key: value for key, value in given.items() if value is not None}
        return {**super().flags(), **context, **given}


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class SiteOptions(BrokerOptions, ClusterOptions):
    """The configuration, cluster and broker that a command uses."""


def read_servers(text: str) -> list[str]:
    """Return the URLs of a value of ``--server``; raises UsageError for another text."""
    from ccpipe.bus.nats.credentials import is_server_url
    from ccpipe.config import mask

    servers = text.split(",")
    for server in servers:
        if not is_server_url(server):
            raise UsageError(
                f"--server: not the URL of a NATS server: {mask(server, 'server')!r} "
                "(expected e.g. nats://10.0.0.1:4222)"
            )
    return servers


def read_context(name: str) -> Mapping[str, Any]:
    """Return the settings of a context of the program ``nats``; by default the selected one.

    They are stored as JSON in ``~/.config/nats/context/NAME.json``, the name of the selected one
    in ``context.txt`` next to that directory.
    """
    import msgspec

    directory = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "nats"
    try:
        name = name or (directory / "context.txt").read_text(encoding="utf-8").strip()
        path = directory / "context" / f"{name}.json"
        given = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except OSError as error:
        raise MissingInputError(f"--context {name}: {error.filename}: {error.strerror}") from None
    except msgspec.DecodeError as error:
        raise UsageError(f"--context {name}: {path}: {error}") from None
    text = {key: value for key, value in given.items() if isinstance(value, str) and value}
    login = text.get("token") or text.get("user", "")
    servers = [_with_login(url, login, text.get("password")) for url in _urls(text)]
    keys = {"creds": "credentials_file", "nkey": "nkey_file", "ca": "ca_file"}
    keys |= {"cert": "cert_file", "key": "key_file"}
    settings = {f"bus.{keys[key]}": value for key, value in text.items() if key in keys}
    return {"bus.servers": servers, **settings}


def _urls(text: Mapping[str, str]) -> list[str]:
    return [url.strip() for url in text.get("url", "nats://127.0.0.1:4222").split(",")]


def _with_login(url: str, user: str, password: str | None) -> str:
    parts = urlsplit(url if "://" in url else f"nats://{url}")
    if not user or "@" in parts.netloc:
        return url
    login = quote(user, safe="") + (f":{quote(password, safe='')}" if password else "")
    return urlunsplit(parts._replace(netloc=f"{login}@{parts.netloc}"))


def seconds(
    text: str | None, flag: str, kind: "type[Duration | Interval] | None" = None
) -> float | None:
    """Parse a duration such as ``30s`` or ``5m`` from a flag; raises UsageError."""
    from ccpipe.config import Duration, to_struct

    if text is None:
        return None
    try:
        return float(to_struct(text, kind or Duration, flag))
    except ConfigError as error:
        raise UsageError(str(error)) from None


def point_in_time(text: str, flag: str) -> int:
    """Parse a time from a flag; returns nanoseconds since the epoch, or raises UsageError.

    It is a date, a time of day or both, local unless it has an offset; a duration such as ``10m``
    is that long ago.
    """
    from ccpipe.config import Duration, to_struct

    today = datetime.now().astimezone().date().isoformat()
    for form in (text, f"{today} {text}"):
        try:
            time = datetime.fromisoformat(form).astimezone(UTC)
        except (ValueError, OverflowError, OSError):
            continue
        return (time - EPOCH) // timedelta(microseconds=1) * 1000
    if text[-1:].isalpha():
        with contextlib.suppress(ConfigError, OverflowError):
            ago = timedelta(seconds=to_struct(text, Duration, flag))
            return (datetime.now(UTC) - ago - EPOCH) // timedelta(microseconds=1) * 1000
    raise UsageError(
        f"{flag}: not a time: {text!r} (expected e.g. 14:30, 2025-02-20, "
        "2025-02-20T14:30:00Z, or 10m for ten minutes ago)"
    )


def check_port(port: int | None, flag: str) -> None:
    if port is not None and not 1 <= port <= MAX_PORT:
        raise UsageError(f"{flag} {port}: not a port (1 to {MAX_PORT})")
