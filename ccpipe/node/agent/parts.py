"""The collectors and translators of a publisher's configuration, and its named profiles.

After a reload, parts with unchanged options are kept, with their state. Wrong configuration is
fatal; a broken plug-in is disabled, with one line in the log.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from ccpipe.config import Interval, Site, to_struct
from ccpipe.errors import ConfigError
from ccpipe.formats.lineprotocol import Lines
from ccpipe.node.collectors.sonar.sample import SonarSample
from ccpipe.node.collectors.sonar.sysinfo import SonarSysinfo
from ccpipe.node.linux import proc
from ccpipe.node.linux.topology import topology_map
from ccpipe.node.sampling.collector import Collector, CollectorGroup, units
from ccpipe.node.sampling.sampler import SamplerSettings
from ccpipe.pipeline import Stages, Translator, fault_of
from ccpipe.pipeline.stages import AnyTranslator
from ccpipe.registry import build, construct, entry_points, find, options_of
from ccpipe.telemetry import Telemetry

log = logging.getLogger(__name__)

PORTABLE = "portable"
"""The collector that replaces the others on systems without ``/proc``."""
OPTIONAL = frozenset({"lustre_jobstats", "topprocs"})
"""Collectors that are off unless the configuration enables them."""


@dataclass(frozen=True, kw_only=True)
class AgentParts:
    """The parts of one configuration."""

    site: Site
    collectors: dict[str, Any]
    intervals: dict[str, float]  # of collectors with an interval of their own, in seconds
    sonar: dict[str, Any]
    translators: list[Translator[Any, Any]]

    @classmethod
    def of(
        cls, site: Site, path: Path | None, telemetry: Telemetry, before: "AgentParts | None" = None
    ) -> "AgentParts":
        """Construct the parts, reusing parts of `before` whose options are unchanged."""
        made = collectors(site, path, before)
        sonar = _sonar(site, made, before)
        if not made and not sonar:
            where = path or "configuration"
            raise ConfigError(f"{where}: publish: every collector and envelope is disabled")
        return cls(
            site=site,
            collectors=made,
            intervals=intervals(site, path, made),
            sonar=sonar,
            translators=_translators(site, path, telemetry, before),
        )

    def of_metrics(self) -> SamplerSettings:
        site = self.site
        each: dict[str, Collector] = {}
        own: dict[str, float] = {}
        for name, collector in self.collectors.items():
            members = {name: collector}
            if isinstance(collector, CollectorGroup):
                members = {f"{name}.{key}": one for key, one in collector.collectors().items()}
            each |= members
            if name in self.intervals:
                own |= dict.fromkeys(members, self.intervals[name])
        return SamplerSettings(
            collectors=each,
            interval=site.publish.interval,
            intervals=own,
            jitter=self._jitter(min([site.publish.interval, *own.values()])),
            units=units() if site.publish.units else {},
            tags={**site.publish.tags, "cluster": site.cluster, "hostname": site.hostname},
        )

    def of_sonar(self) -> SamplerSettings:
        options = self.site.publish.sonar
        every = {"sonar_sample": options.sample_interval, "sonar_sysinfo": options.sysinfo_interval}
        own = {name: float(every[name]) for name in self.sonar}
        min_interval = min(own.values(), default=300.0)
        return SamplerSettings(
            collectors=self.sonar,
            interval=min_interval,
            intervals=own,
            jitter=self._jitter(min_interval),
            tags=None,
        )

    def _jitter(self, min_interval: float) -> float:
        jitter = self.site.publish.jitter
        return min_interval / 50 if jitter is None else jitter


def collectors(site: Site, path: Path | None, before: AgentParts | None = None) -> dict[str, Any]:
    """Construct the installed collectors, except those that are disabled or broken."""
    where = str(path or "configuration")
    installed = entry_points("collectors")
    for name in site.publish.collectors:
        if name not in installed:
            find("collectors", name, f"{where}: publish.collectors.{name}")
    made = {}
    for name, entry in installed.items():
        if not is_enabled(site, name, where):
            continue
        table = site.publish.collectors.get(name, {})
        if before and name in before.collectors and _options(site, name) == _options(
            before.site, name
        ):  # fmt: skip
            made[name] = before.collectors[name]
            continue
        key = f"publish.collectors.{name}"
        try:
            cls = entry.load()
            _require_collector(cls)
            _check_keys(cls, table, where, key)
            made[name] = construct(cls, _options(site, name), where=where, path=key, context={})
            _require_collector(made[name])
        except ConfigError:
            raise
        except Exception as error:  # noqa: BLE001 - a broken plug-in affects no other
            reason = f"{type(error).__name__}: {error}"
            log.warning("collector %s is off: %s cannot be used: %s", name, entry.value, reason)
    if "topprocs" in made and (table := _process_table(made)) is not None:
        made["topprocs"].table = table
    return made


def _process_table(made: Mapping[str, Any]) -> Any:
    """Return the table of the collector `processes`, whose scan others share; None without it."""
    return getattr(made.get("processes"), "table", None)


def _require_collector(part: Any) -> None:
    cls = part if isinstance(part, type) else type(part)
    if fault := fault_of(part, CollectorGroup if issubclass(cls, CollectorGroup) else Collector):
        raise TypeError(fault)


def intervals(site: Site, path: Path | None, made: Mapping[str, Any]) -> dict[str, float]:
    """Return intervals from the configuration, else from collectors' attribute ``INTERVAL``."""
    where = str(path or "configuration")
    own: dict[str, float] = {}
    for name, collector in made.items():
        given = site.publish.collectors.get(name, {}).get("interval")
        if given is not None:
            own[name] = to_struct(given, Interval, where, f"publish.collectors.{name}.interval")
        elif (usual := getattr(collector, "INTERVAL", None)) is not None:
            own[name] = float(usual)
    return own


_COMMON = ("interval", "enabled")  # options that every collector has


def is_enabled(site: Site, name: str, where: str) -> bool:
    default = name not in OPTIONAL and (name != PORTABLE or not proc.is_there())
    given = site.publish.collectors.get(name, {}).get("enabled", default)
    return to_struct(given, bool, where, f"publish.collectors.{name}.enabled")


def _check_keys(cls: type[Any], table: Mapping[str, Any], where: str, key: str) -> None:
    """Raise ConfigError for an unknown key; suggestions include the common keys."""
    known = [field.name for field in msgspec.structs.fields(options_of(cls))]
    fields = [(name, Any, None) for name in (*known, *_COMMON)]
    to_struct(table, msgspec.defstruct("Options", fields, forbid_unknown_fields=True), where, key)


def _options(site: Site, name: str) -> Mapping[str, Any]:
    table = site.publish.collectors.get(name, {})
    return {key: value for key, value in table.items() if key not in _COMMON}


def _sonar(site: Site, made: Mapping[str, Any], before: AgentParts | None) -> dict[str, Any]:
    """Make the collectors of Sonar's envelopes; without ``/proc``, return an empty dictionary.

    They share a scan of all processes with the collectors `processes` and `topprocs`.
    """
    if not proc.is_there():
        return {}
    options = site.publish.sonar
    own: dict[str, Any] = {
        "exclude_system_jobs": options.exclude_system_jobs,
        "exclude_users": options.exclude_users,
        "exclude_commands": options.exclude_commands,
        "min_cpu_time": options.min_cpu_time,
        "rollup": options.rollup,
        "pss": options.pss,
    }
    known = before.sonar if before else {}
    sonar: dict[str, Any] = {}
    if options.sample_interval:
        table = _process_table(made)
        sample = known.get("sonar_sample")
        was = before.site.publish.sonar if before else None
        if sample is None or any(getattr(was, key) != value for key, value in own.items()):
            sample = SonarSample(cluster=site.cluster, node=site.hostname, table=table, **own)
        elif table is not None:
            sample.table = table
        sonar["sonar_sample"] = sample
    if options.sysinfo_interval:
        sonar["sonar_sysinfo"] = known.get("sonar_sysinfo") or SonarSysinfo(
            cluster=site.cluster, node=site.hostname
        )
    return sonar


def _translators(
    site: Site, path: Path | None, telemetry: Telemetry, before: AgentParts | None
) -> list[Translator[Any, Any]]:
    tables = site.publish.translate
    if before is not None and tables == before.site.publish.translate:
        return before.translators
    if not tables:
        return []
    where = str(path or "configuration")
    context = {"site": site, "telemetry": telemetry, "units": units(), "topology": topology_map()}
    built = translators(tables, where=where, path="publish.translate", context=context)
    made = Stages(built, Lines).translators
    for i, translator in enumerate(made):
        if {translator.takes.name, translator.gives.name} != {"lines"}:
            raise ConfigError(
                f"{where}: publish.translate[{i}]: {tables[i]['use']!r} is for envelopes; "
                "use it in a bridge"
            )
    return made


def translators(
    tables: list[dict[str, Any]], *, where: str, path: str, context: Mapping[str, Any]
) -> list[AnyTranslator]:
    return [
        build("translators", table, where=where, path=f"{path}[{i}]", context=context)
        for i, table in enumerate(tables)
    ]


AVERAGED = (
    "temperature",
    "max_temperature",
    "crit_temperature",
    "ipmi_temperature",
    "ipmi_fan",
    "ipmi_voltage",
    "ipmi_percent",
    "smartmon_temp",
    "smartmon_percent_used",
    "smartmon_avail_spare",
)
"""Metrics of sensors and disks that cannot be summed."""

DISKS = (
    "sd[a-z]", "sd[a-z][a-z]", "vd[a-z]", "xvd[a-z]", "hd[a-z]", "dasd[a-z]", "dasd[a-z][a-z]",
    "nvme*n[0-9]", "nvme*n[0-9][0-9]", "mmcblk[0-9]",
)  # fmt: skip
"""Whole disks: the activity of partitions and volumes would count twice."""

VIRTUAL_INTERFACES = (
    "lo", "bond*", "team*", "br[0-9]*", "br-*", "virbr*", "docker*", "podman*", "veth*", "cni*",
    "cali*", "flannel*", "vnet*", "tap*", "tun*", "dummy*", "*.*",
)  # fmt: skip
"""Interfaces whose traffic is counted on others already, or stays on the node."""

_DEVICES = {"type": "node", "stype": "*"}


@dataclass(frozen=True, kw_only=True)
class PublisherProfile:
    """Settings for one reader that a site enables with one key, unless it sets them itself."""

    precision: Literal["auto", "s", "ms", "us", "ns"]
    collectors: Mapping[str, Mapping[str, Any]]
    translate: Sequence[Mapping[str, Any]]  # applied after the site's own rules


# cc-metric-store keys metrics of a node by name and host alone: series that differ in stype only
# would overwrite each other. bridges/clustercockpit.toml has the same rules.
CLUSTERCOCKPIT = PublisherProfile(
    precision="s",
    collectors={
        "disk": {"include": list(DISKS)},
        "network": {"exclude": list(VIRTUAL_INTERFACES)},
        "slurm_cgroup": {"hwthreads": True},
    },
    translate=(
        {"use": "select", "numeric": True},
        {"use": "drop", "tags": {"type": "node", "stype": "job"}},
        {
            "use": "aggregate", "function": "mean", "of": "stype",
            "names": list(AVERAGED), "tags": _DEVICES,
        },
        {"use": "drop", "names": list(AVERAGED), "tags": _DEVICES},
        {"use": "aggregate", "function": "sum", "of": "stype", "tags": _DEVICES},
        {"use": "drop", "tags": _DEVICES},
    ),
)  # fmt: skip

PROFILES = {"clustercockpit": CLUSTERCOCKPIT}


def with_profile(site: Site) -> Site:
    """Return a site's configuration with what its profile sets; the site's own options win."""
    publish = site.publish
    profile = PROFILES.get(publish.profile)
    if profile is None:
        return site
    own = publish.collectors
    publish = msgspec.structs.replace(
        publish,
        precision=profile.precision if publish.precision == "auto" else publish.precision,
        collectors={
            **own,
            **{name: {**table, **own.get(name, {})} for name, table in profile.collectors.items()},
        },
        translate=[*publish.translate, *(dict(table) for table in profile.translate)],
    )
    return msgspec.structs.replace(site, publish=publish)
