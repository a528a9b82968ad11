"""The keys of ``ccpipe.toml`` and of recipes, with their meaning and defaults."""

import ipaddress
import re
import socket
from typing import Annotated, Any, Literal

import msgspec

from ccpipe.config.converter import Duration, Interval, Size


class Bus(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Connection to the broker. Secrets are read from files only."""

    servers: list[str] = []
    """URLs such as ``nats://10.0.0.1:4222``; if empty, a running ``ccpipe up`` or localhost."""
    user: str = ""
    """User name, if the broker requires one."""
    password_file: str = ""
    """File containing the user's password."""
    credentials_file: str = ""
    """Credentials file (``.creds``: JWT and seed)."""
    nkey_file: str = ""
    """File containing an nkey seed."""
    ca_file: str = ""
    """CA certificate of the server, if it is signed by a private CA."""
    cert_file: str = ""
    """Client certificate, if the server requires one."""
    key_file: str = ""
    """Private key of the client certificate."""
    tls: Literal["auto", "require", "first"] = "auto"
    """``require`` sends nothing unencrypted, not even credentials; ``first`` starts with the TLS
    handshake, for servers with ``handshake_first``; ``auto`` means ``require`` if a URL begins with
    ``tls://`` or if ``ca_file`` or ``cert_file`` is set, otherwise the server decides."""
    jetstream: bool = True
    """Use JetStream (at-least-once delivery) instead of core NATS (at most once)."""
    subjects: dict[str, str | dict[str, str]] = {}
    """Overrides of the default subjects; see ``docs/reference/wire.md``."""
    stream_max_age: Duration = Duration(86400)
    """How long the stream keeps messages for bridges that are not running."""
    stream_max_bytes: Size = Size(2**30)
    """Maximum size of the stream; for a full stream see ``stream_discard``."""
    stream_discard: Literal["old", "new"] = "old"
    """Policy of a full stream: ``old`` deletes the oldest messages, even unread ones; ``new``
    rejects new messages, which publishers then keep in their spool."""
    stream_compression: Literal["none", "s2"] = "none"
    """Compression of the stream's blocks on disk; ``stream_max_bytes`` counts what they hold
    uncompressed."""
    stream_replicas: Annotated[int, msgspec.Meta(ge=1, le=5)] = 1
    """Number of servers of a JetStream cluster that store each message; see
    ``docs/operations/nats.md``."""
    stream_sources: list[str] = []
    """JetStream domains from whose stream of the same name, or from ``domain/stream``, this stream
    copies its messages. It then stores nothing published here."""
    stream_mirror: str = ""
    """Domain, or ``domain/stream``, whose stream this one mirrors."""
    domain: str = ""
    """JetStream domain, such as a leaf node's; default: the connected server's."""
    stream_partitions: Annotated[int, msgspec.Meta(ge=1, le=256)] = 1
    """Number of partitions that bridges of one recipe share; each partition is read in order by
    one bridge; see ``docs/operations/scale.md``."""


class SonarOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Sonar data about the node, published on ``<cluster>.sonar.*``."""

    sample_interval: Duration = Duration(300)
    """Interval of ``sample`` data (processes, CPUs, GPUs); 0 disables it."""
    sysinfo_interval: Duration = Duration(86400)
    """Interval of ``sysinfo`` data, also sent at startup; 0 disables it."""
    exclude_system_jobs: bool = True
    """Exclude processes of users with a UID below 1000."""
    exclude_users: list[str] = []
    """Users whose processes are excluded."""
    exclude_commands: list[str] = []
    """Commands whose processes are excluded, by prefix of their name."""
    min_cpu_time: Duration = Duration(0)
    """Exclude processes that have used less CPU time than this."""
    rollup: bool = False
    """Merge similar processes with the same job and parent into one entry."""
    pss: bool = False
    """Report memory as PSS; requires root for processes of other users."""
    profile: Literal["spec", "sonar", "jobanalyzer", "slurm-monitor"] = "spec"
    """Target reader of the envelopes: the specification, or a program."""


class ControlOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings that can be read and changed over ``<cluster>.control.*``."""

    enabled: bool = True
    """Reply to control requests."""
    allow: list[Literal["interval", "freq", "nvml", "prefetcher", "rapl", "uncore_freq"]] = []
    """Settings that may be changed; other PUT requests are rejected."""


class SpoolOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Spool on disk while the broker is unreachable; see ``docs/node/publisher.md``."""

    enabled: bool = True
    """Keep messages on disk; otherwise in memory only."""
    dir: str = ""
    """Its directory; default: ``spool`` in the state directory."""
    max_size: Size = Size(64 * 2**20)
    """Maximum size; beyond it, the oldest metrics are dropped, but never events."""
    max_age: Duration = Duration(86400)
    """How long metrics are kept; a restart of the publisher begins anew."""
    replay_rate: Annotated[int, msgspec.Meta(ge=1)] = 20
    """Maximum messages per second replayed when the broker is back."""


def check_tag(key: str, text: str) -> None:
    """Check that a text can be a tag in line protocol, or its key; raises ValueError.

    What ``formats.lineprotocol`` cannot escape would make a dead letter of every line.
    """
    if text.endswith("\\") or re.search(r"[\x00-\x1f\x7f\ud800-\udfff]", text):
        rule = "no control character, no backslash at the end"
        raise ValueError(f"{key}: not a tag of line protocol: {text!r:.80} ({rule})")


class Publish(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Data published by a node, and intervals."""

    interval: Interval = Interval(10)
    """Time between two samples of a metric."""
    jitter: Duration | None = None
    """Maximum random delay of each sample, so that nodes do not all publish at once; default:
    a fiftieth of the interval."""
    collectors: dict[str, dict[str, Any]] = {}
    """Options by collector; ``enabled = false`` disables one, ``interval`` overrides its
    interval."""
    units: bool = False
    """Add the tag ``unit`` to each metric."""
    translate: list[dict[str, Any]] = []
    """Translators applied to the metrics, in order, as in a recipe; ``use`` names each."""
    sonar: SonarOptions = SonarOptions()
    control: ControlOptions = ControlOptions()
    spool: SpoolOptions = SpoolOptions()
    log_level: Literal["debug", "info", "warn", "error", "off"] = "info"
    """Minimum level of the publisher's log messages sent to ``<cluster>.log.ccpipe``."""
    tags: dict[str, str] = {}
    """Tags added to each metric, besides ``cluster``, ``hostname`` and ``type``."""
    profile: Literal["none", "clustercockpit"] = "none"
    """Target reader of the metrics: ``clustercockpit`` sends what cc-metric-store can store; see
    ``docs/clustercockpit/site.md``."""
    precision: Literal["auto", "s", "ms", "us", "ns"] = "auto"
    """Unit of the timestamps of metrics; ``auto`` uses the largest exact unit, and ``s`` with the
    profile ``clustercockpit``."""
    dead_letter_file: str = ""
    """File for lines that cannot be delivered; default: ``dead.lp`` in the state directory."""

    def __post_init__(self) -> None:
        for key, text in self.tags.items():
            check_tag("tags", key)
            check_tag(f"tags.{key}", text)


class TelemetryOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """HTTP server for ``/health``, ``/ready`` and ``/metrics``."""

    listen: str = ""
    """Address as ``host:port``; empty disables the server."""


class DashboardOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Address of the dashboard, and who may see what; see ``docs/operations/dashboard.md``."""

    listen: str = "127.0.0.1:8770"
    """Address as ``host:port``; other hosts can be served only with access control."""
    base_path: str = ""
    """Path below which a reverse proxy serves the dashboard, such as ``/ccpipe``."""
    token_file: str = ""
    """File with a line ``token role user`` for each viewer; only ``token`` means an
    administrator."""
    user_header: str = ""
    """Header in which a trusted proxy passes the name of the user that it has authenticated, such
    as ``X-Forwarded-User``; requests of other clients with this header are refused."""
    groups_header: str = ""
    """Header in which the proxy passes the user's groups, separated by commas."""
    trusted_proxies: list[str] = []
    """Addresses or networks of the proxies, such as ``127.0.0.1`` or ``10.0.0.0/24``."""
    proxy_secret_file: str = ""
    """File with a secret that the proxy sends in the header ``X-Ccpipe-Proxy-Secret``; needed
    where other users can connect from the address of the proxy."""
    admins: list[str] = []
    """Users with the role ``admin``: everything, with log messages, dead letters and streams."""
    support: list[str] = []
    """Users with the role ``support``: all jobs, nodes and events."""
    admin_groups: list[str] = []
    """Groups whose members have the role ``admin``."""
    support_groups: list[str] = []
    """Groups whose members have the role ``support``; other users see their own jobs only."""

    def __post_init__(self) -> None:
        if self.base_path and not re.fullmatch(r"(/[A-Za-z0-9._~-]+)+", self.base_path):
            raise ValueError(f"base_path: expected a path such as /ccpipe: {self.base_path!r:.80}")
        if {".", ".."} & set(self.base_path.split("/")):
            raise ValueError(f"base_path: contains . or ..: {self.base_path!r:.80}")
        if self.groups_header and not self.user_header:
            raise ValueError("groups_header: needs user_header")
        if self.user_header and not (self.trusted_proxies or self.proxy_secret_file):
            raise ValueError("user_header: needs trusted_proxies or proxy_secret_file")
        for header in (self.user_header, self.groups_header):
            if header and not re.fullmatch(r"[A-Za-z0-9-]+", header):
                raise ValueError(f"not the name of a header: {header!r:.80}")
        for network in self.trusted_proxies:
            try:
                ipaddress.ip_network(network)
            except ValueError as error:
                raise ValueError(f"trusted_proxies: {error}") from None


class Batching(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Batching of records before a write; defaults depend on the sink."""

    max_records: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """Maximum number of records per write."""
    max_bytes: Size | None = None
    """Maximum size of the records of a write, in memory."""
    max_wait: Duration | None = None
    """Maximum time a record waits for others."""
    write_timeout: Duration | None = None
    """Timeout of a write, which is then retried with half of the records."""
    max_memory: Size | None = None
    """Maximum size of all records in memory; beyond it, the source is not read."""


class HistoryOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The store that the dashboard and ``ccpipe jobs`` read, filled by a bridge."""

    store: str = ""
    """A directory of Parquet files, ``http://…`` of VictoriaMetrics or Prometheus, or
    ``postgresql://…``; default: none."""
    user: str = ""
    """User name, if the store requires one."""
    password_file: str = ""
    """File containing the user's password."""


class Site(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The contents of ``ccpipe.toml``, which all commands share."""

    cluster: Annotated[str, msgspec.Meta(min_length=1)] = "local"
    """Name of the cluster: the tag ``cluster``, and part of subjects."""
    hostname: Annotated[str, msgspec.Meta(min_length=1)] = msgspec.field(
        default_factory=lambda: socket.gethostname().partition(".")[0]
    )
    """Short name of this node: the tag ``hostname``."""
    bus: Bus = Bus()
    publish: Publish = Publish()
    telemetry: TelemetryOptions = TelemetryOptions()
    dashboard: DashboardOptions = DashboardOptions()
    history: HistoryOptions = HistoryOptions()

    def __post_init__(self) -> None:
        check_tag("cluster", self.cluster)
        check_tag("hostname", self.hostname)
        if not self.hostname:
            raise ValueError("hostname: this host has no name; set it")


class Recipe(Site, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A bridge: a source, translators and a sink, in addition to the site's keys."""

    source: dict[str, Any]
    """``use`` names the source; the other keys are its options."""
    translate: list[dict[str, Any]] = []
    """Translators, in order; ``use`` names each."""
    sink: dict[str, Any]
    """``use`` names the sink; the other keys are its options."""
    batch: Batching = Batching()
