"""What a publisher's configuration names, made: collectors and translators.

Made anew from a configuration that was read again, parts whose options are the same are the same
objects, so that they keep what they know.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ccpipe.config import Interval, Site, convert
from ccpipe.errors import ConfigError
from ccpipe.pipeline import Translator
from ccpipe.registry import build, construct, find, names
from ccpipe.telemetry import Telemetry


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What was made of one configuration."""

    site: Site
    collectors: dict[str, Any]
    intervals: dict[str, float]
    """Of the collectors that have one of their own, in seconds."""
    sonar: dict[str, Any]
    """The collectors of Sonar's envelopes."""
    translators: list[Translator]

    @classmethod
    def of(
        cls, site: Site, path: Path | None, telemetry: Telemetry, before: "Parts | None" = None
    ) -> "Parts":
        """Make the parts; those of `before` go on where their options are the same.

        Raises
        ------
        ConfigError
            naming the key path of what is wrong.

        """
        made = collectors(site, path, before)
        return cls(
            site=site,
            collectors=made,
            intervals=intervals(site, path),
            sonar=_sonar(site, made, before),
            translators=_translators(site, path, telemetry, before),
        )

    def of_metrics(self) -> dict[str, Any]:
        """Return what the sampler of metrics is told."""
        from ccpipe.node.sampling.metrics import units

        site = self.site
        return {
            "collectors": self.collectors,
            "interval": site.publish.interval,
            "intervals": self.intervals,
            "jitter": self._jitter(min([site.publish.interval, *self.intervals.values()])),
            "units": units() if site.publish.units else None,
            "tags": {**site.publish.tags, "cluster": site.cluster, "hostname": site.hostname},
        }

    def of_sonar(self) -> dict[str, Any]:
        """Return what the sampler of Sonar's envelopes is told."""
        options = self.site.publish.sonar
        every = {"sonar_sample": options.sample, "sonar_sysinfo": options.sysinfo}
        own = {name: float(every[name]) for name in self.sonar}
        min_interval = min(own.values(), default=300.0)
        return {
            "collectors": self.sonar,
            "interval": min_interval,
            "intervals": own,
            "jitter": self._jitter(min_interval),
            "tags": None,
        }

    def _jitter(self, min_interval: float) -> float:
        jitter = self.site.publish.jitter
        return min_interval / 50 if jitter is None else jitter


def collectors(site: Site, path: Path | None, before: Parts | None = None) -> dict[str, Any]:
    """Make the collectors that are installed, but for those that the configuration leaves out.

    Raises
    ------
    ConfigError
        naming the key path of an option or a collector that is unknown.

    """
    where = str(path or "configuration")
    for name in site.publish.collectors:
        find("collectors", name, f"{where}: publish.collectors.{name}")
    made = {}
    for name in _chosen(site):
        options = _options(site, name)
        if before and name in before.collectors and options == _options(before.site, name):
            made[name] = before.collectors[name]
        else:
            key = f"publish.collectors.{name}"
            cls = find("collectors", name, key)
            made[name] = construct(cls, options, where=where, path=key, context={})
    if not made:
        raise ConfigError(f"{where}: publish.collectors: every collector is left out")
    return made


def intervals(site: Site, path: Path | None) -> dict[str, float]:
    """Return the intervals of the collectors that have one of their own.

    It is that of the configuration, else the collector's attribute ``INTERVAL``.

    Raises
    ------
    ConfigError
        naming the key path of one that is none.

    """
    where = str(path or "configuration")
    own: dict[str, float] = {}
    for name in _chosen(site):
        key = f"publish.collectors.{name}"
        given = site.publish.collectors.get(name, {}).get("interval")
        if given is not None:
            own[name] = convert(given, Interval, where, f"{key}.interval")
        elif (usual := getattr(find("collectors", name, key), "INTERVAL", None)) is not None:
            own[name] = float(usual)
    return own


def _chosen(site: Site) -> list[str]:
    """Return the names of the collectors that are not left out."""
    options = site.publish.collectors
    return [name for name in names("collectors") if options.get(name, {}).get("enabled", True)]


def _options(site: Site, name: str) -> Mapping[str, Any]:
    """Return what a collector itself is told."""
    options = site.publish.collectors.get(name, {})
    return {key: value for key, value in options.items() if key not in ("interval", "enabled")}


def _sonar(site: Site, made: Mapping[str, Any], before: Parts | None) -> dict[str, Any]:
    """Make the collectors of Sonar's envelopes; they share a walk over all processes."""
    from ccpipe.node.collectors.sonar.sample import SonarSample
    from ccpipe.node.collectors.sonar.sysinfo import SonarSysinfo

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
    if options.sample:
        table = getattr(made.get("processes"), "table", None)
        sample = known.get("sonar_sample")
        was = before.site.publish.sonar if before else None
        if sample is None or any(getattr(was, key) != value for key, value in own.items()):
            sample = SonarSample(cluster=site.cluster, node=site.hostname, table=table, **own)
        elif table is not None:
            sample.table = table
        sonar["sonar_sample"] = sample
    if options.sysinfo:
        sonar["sonar_sysinfo"] = known.get("sonar_sysinfo") or SonarSysinfo(
            cluster=site.cluster, node=site.hostname
        )
    return sonar


def _translators(
    site: Site, path: Path | None, telemetry: Telemetry, before: Parts | None
) -> list[Translator]:
    tables = site.publish.translate
    if before is not None and tables == before.site.publish.translate:
        return before.translators
    if not tables:
        return []
    from ccpipe.node.linux.topology_map import topology_map
    from ccpipe.node.sampling.metrics import units

    where = str(path or "configuration")
    context = {"site": site, "telemetry": telemetry, "units": units(), "topology": topology_map()}
    made = translators(tables, where=where, path="publish.translate", context=context)
    for i, translator in enumerate(made):
        if {translator.takes.name, translator.gives.name} != {"lines"}:
            raise ConfigError(
                f"{where}: publish.translate[{i}]: {tables[i]['use']!r} takes or gives envelopes; "
                "it is for a bridge"
            )
    return made


def translators(
    tables: list[dict[str, Any]], *, where: str, path: str, context: Mapping[str, Any]
) -> list[Translator]:
    """Make the translators of a list of tables; `path` is the list's key path.

    Raises
    ------
    ConfigError
        naming the key path of what is wrong.

    """
    return [
        build("translators", table, where=where, path=f"{path}[{i}]", context=context)
        for i, table in enumerate(tables)
    ]
