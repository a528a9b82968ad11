"""``ccpipe publish``: this node's metrics onto the bus."""

from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from ccpipe.cli.options import Where, seconds
from ccpipe.cli.pipe import run_pipe
from ccpipe.config import Interval, Site, convert, state_folder
from ccpipe.errors import ConfigError
from ccpipe.pipeline import Sink
from ccpipe.registry import construct, find, names
from ccpipe.telemetry import Telemetry


async def publish(
    *,
    once: bool = False,
    dry_run: bool = False,
    output: Annotated[Literal["line", "json", "table"], Parameter(alias="-o")] = "line",
    interval: str | None = None,
    for_: Annotated[str | None, Parameter(name="--for")] = None,
    where: Where = Where(),  # noqa: B008 - frozen
) -> None:
    """Publish this node's metrics.

    Samples are taken at multiples of the interval by the wall clock, so that
    all nodes of a cluster speak of the same moments. While the server is away
    they are kept, up to 64 MiB.

    Examples:
      ccpipe publish --once --dry-run -o table
      ccpipe publish --server nats://10.0.0.1:4222 --cluster fritz
      CCPIPE_CONFIG=/etc/ccpipe/ccpipe.toml ccpipe publish

    Parameters
    ----------
    once
        Take one sample and end.
    dry_run
        Print what would be published; connect to nothing.
    output
        How a dry run prints.
    interval
        Time between samples, such as 10s; it wins over the configuration.
    for_
        End after this time, such as 30s.
    """
    from ccpipe.sinks.dead_file import DeadFile
    from ccpipe.sources.metrics import units
    from ccpipe.sources.sampler import Sampler

    site = where.site(**{"publish.interval": interval})
    jitter = site.publish.jitter
    telemetry = Telemetry()
    sampler = Sampler(
        collectors(site, where.path()),
        interval=site.publish.interval,
        intervals=intervals(site, where.path()),
        jitter=site.publish.interval / 50 if jitter is None else jitter,
        units=units() if site.publish.units else None,
        tags={**site.publish.tags, "cluster": site.cluster, "hostname": site.hostname},
        once=once,
        telemetry=telemetry,
    )
    sink = _printer(output) if dry_run else _publisher(site, telemetry)
    await run_pipe(
        sampler,
        sink,
        name="publisher",
        telemetry=telemetry,
        listen=site.telemetry.listen,
        limits=getattr(sink, "limits", None),
        cemetery=DeadFile(Path(site.publish.dead_file or state_folder() / "dead.lp")),
        seconds=seconds(for_, "--for"),
    )


def _publisher(site: Site, telemetry: Telemetry) -> Sink:
    from ccpipe.bus.sink import NatsSink

    return NatsSink(site=site, telemetry=telemetry)


def collectors(site: Site, path: Path | None) -> dict[str, Any]:
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
    for name in names("collectors"):
        options = dict(site.publish.collectors.get(name, {}))
        options.pop("interval", None)
        if options.pop("enabled", True):
            key = f"publish.collectors.{name}"
            cls = find("collectors", name, key)
            made[name] = construct(cls, options, where=where, path=key, context={})
    if not made:
        raise ConfigError(f"{where}: publish.collectors: every collector is left out")
    return made


def intervals(site: Site, path: Path | None) -> dict[str, float]:
    """Return the intervals of the collectors that have one of their own.

    Raises
    ------
    ConfigError
        naming the key path of one that is none.

    """
    where = str(path or "configuration")
    return {
        name: convert(options["interval"], Interval, where, f"publish.collectors.{name}.interval")
        for name, options in site.publish.collectors.items()
        if "interval" in options and options.get("enabled", True)
    }


def _printer(output: Literal["line", "json", "table"]) -> Sink:
    if output == "table":
        from ccpipe.cli.output import TableSink

        return TableSink()
    from ccpipe.sinks.stdout import StdoutSink

    return StdoutSink(format=output)
