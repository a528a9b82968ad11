"""The keys of ``ccpipe.toml`` and of recipes, with their meaning and defaults."""

import socket
from typing import Annotated, Any, Literal

import msgspec

from ccpipe.config.units import Duration, Interval, Size


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
