"""``ccpipe publish``: this node's metrics onto the bus."""

import sys
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from ccpipe.cli.config.explain import explain as explain_translators
from ccpipe.cli.console.message_table import MessageTable
from ccpipe.cli.console.options import DURATION, ExitAfter, SiteOptions, seconds
from ccpipe.cli.recipe.pipe import Pipe, run_pipe
from ccpipe.config import Interval, Site
from ccpipe.errors import OutputError, UnavailableError, UsageError
from ccpipe.formats.lineprotocol import Lines
from ccpipe.formats.sonar import WriteProfile, encode
from ccpipe.formats.sonar.envelopes import Envelopes
from ccpipe.node.agent.agent import Agent
from ccpipe.pipeline import Sink
from ccpipe.sinks.dead_letter_file import DeadLetterFile
from ccpipe.sinks.stdout import StdoutSink
from ccpipe.telemetry import Telemetry

Output = Literal["line", "json", "table", "sonar"]


async def publish(
    *,
    once: bool = False,
    dry_run: bool = False,
    explain: bool = False,
    output: Annotated[Output, Parameter(alias="-o")] = "line",
    interval: Annotated[str | None, DURATION] = None,
    for_: ExitAfter = None,
    where: SiteOptions = SiteOptions(),
) -> None:
    """Publish this node's metrics.

    Also publishes Sonar envelopes and the publisher's own log, and replies to
    control requests to this node. Samples are taken at multiples of the interval
    by the wall clock, so all nodes of a cluster are synchronized. While the server
    is down, messages are spooled to disk, up to 64 MiB. SIGHUP reloads the
    configuration. docs/node/publisher.md describes how to run it as a service.

    Examples:
      ccpipe publish --once --dry-run -o table
      ccpipe publish --once --explain
      CCPIPE_CONFIG=/etc/ccpipe/ccpipe.toml ccpipe publish

    Parameters
    ----------
    once
        Publish one sample of everything and exit; without a server, exit with 69.
    dry_run
        Print metrics as they would be published; connect to nothing.
    explain
        With --once: print what each [[publish.translate]] does to a sample.
    output
        How a dry run prints metrics; sonar prints Sonar envelopes instead.
    interval
        Time between samples, such as 10s; overrides the configuration.
    """
    seconds(interval, "--interval", Interval)
    agent = Agent(
        lambda: where.site(**{"publish.interval": interval}),
        where.path(),
        once=once,
        telemetry=Telemetry(),
    )
    if explain:
        await _explain(agent, output)
    elif dry_run:
        await _print(agent, output, seconds(for_, "--for"))
    else:
        await agent.run(seconds(for_, "--for"))


async def _explain(agent: Agent, output: Output) -> None:
    if not agent.once or output == "sonar":
        raise UsageError("--explain is for metrics, with --once")
    records = Lines.concat([batch.records async for batch in agent.metrics.batches()])
    names = [table["use"] for table in agent.site.publish.translate]
    explain_translators(records, agent.parts.translators, names, output)


async def _print(agent: Agent, output: Output, after: float | None) -> None:
    source = agent.sonar if output == "sonar" else agent.metrics
    if source is None:
        raise UsageError("--output sonar: publish.sonar disables both envelopes")
    sink = _printer(output, agent.site)
    pipe = Pipe(
        source=source,
        sink=sink,
        name="publisher",
        telemetry=agent.telemetry,
        listen=agent.site.telemetry.listen,
        translators=() if output == "sonar" else agent.stages,
        limits=sink.limits,
        dead_letter_sink=DeadLetterFile(agent.dead_letter_file()),
    )
    await run_pipe(pipe, seconds=after)


def _printer(output: Output, site: Site) -> Sink[Any]:
    if output == "sonar":
        return EnvelopePrinter(site.publish.sonar.profile)
    return TablePrinter() if output == "table" else LinePrinter(format=output)


class TablePrinter(Sink[Lines]):
    """Prints records on stdout as a table."""

    takes = Lines

    def __init__(self) -> None:
        self._table = MessageTable(sys.stdout)

    async def write(self, records: Lines) -> None:
        print(self._table.render(records), end="", flush=True)


class LinePrinter(StdoutSink):
    """Ends the command if the output fails, as the other printers do; a bridge waits."""

    async def write(self, records: Lines) -> None:
        try:
            await super().write(records)
        except UnavailableError as error:
            raise OutputError(str(error)) from None


class EnvelopePrinter(Sink[Envelopes]):
    """Prints envelopes on stdout, one per line, as they would be published."""

    takes = Envelopes

    def __init__(self, profile: WriteProfile) -> None:
        self._profile = profile

    async def write(self, records: Envelopes) -> None:
        sys.stdout.buffer.write(
            b"".join(encode(envelope, profile=self._profile) for envelope in records)
        )
        sys.stdout.buffer.flush()
