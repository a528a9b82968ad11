"""``ccpipe step``: run a command and measure its resource usage, as Slurm does for a step."""

import os
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from ccpipe.cli.console.options import SiteOptions, refuse_options
from ccpipe.cli.step.report import write_report
from ccpipe.cli.step.run import StepRun, file_name
from ccpipe.config import Site, state_directory
from ccpipe.errors import ConfigError, UsageError
from ccpipe.node.gather.profile import SeriesSelection, Step, parse_frequencies, parse_selection

DAEMON_WAITING = 200_000
"""Maximum number of messages of a whole node that wait for the server."""

_MAX_ID = 2**32
_INTERVALS = dict.fromkeys(("task", "energy", "filesystem", "network"), 1.0)
_SPECIAL_STEPS = {"4294967291": "batch", "4294967290": "interactive", "4294967292": "extern"}


def step(
    *command: Annotated[str, Parameter(allow_leading_hyphen=True)],
    daemon: bool = False,
    job: Annotated[int | None, Parameter(alias="-j")] = None,
    step: str | None = None,
    task: int | None = None,
    freq: str = "1",
    hdf5: Path | None = None,
    series: str = "all",
    pss: bool = False,
    cgroup: bool = False,
    publish: bool = False,
    output: Annotated[Literal["table", "json"], Parameter(alias="-o")] = "table",
    out: Path | None = None,
    where: SiteOptions = SiteOptions(),
) -> None:
    """Run a command and report its resource usage, as sacct does for a step.

    Does not need Slurm. CPU time, memory, disk I/O and page faults cover the
    command and all its descendants, polled from /proc. The report goes to stderr;
    stdout is the command's. The exit code is the command's, 128 plus the signal
    number if a signal ended it, or 127 if it cannot be started. Signals are passed
    on. Within a Slurm job, the IDs are read from the environment.

    Examples: ccpipe step -- ./solver input.dat
              ccpipe step --hdf5 17_0_n1.h5 --freq task=0.5,energy=5 -- ./solver
              ccpipe step --daemon --publish --out /var/log/steps.json -o json

    With --daemon it runs no command, but monitors the steps that Slurm runs on
    this node, found by their control groups, until SIGTERM. The report of each
    step goes to stdout, or is appended to the file given by --out. While the
    broker is down, messages are spooled to disk as set in [publish.spool].

    Parameters
    ----------
    command
        The program and its arguments.
    daemon
        Monitor all steps that Slurm runs on this node instead of a command.
    job
        Job ID; default: $SLURM_JOB_ID, else the ID of this process.
    step
        Step ID; default: $SLURM_STEP_ID, else 0.
    task
        Task ID; default: $SLURM_PROCID, else 0.
    freq
        Seconds between samples, of tasks or of each series: task=1,energy=5.
    hdf5
        Write time series to this HDF5 file, or under Slurm's file name to this directory; with
        --daemon, a directory that gets a subdirectory for each user.
    series
        What to profile: task, energy, filesystem, network, all or none; also selects which of the
        node's series are published.
    pss
        Report memory as proportional set size, like Slurm's UsePss.
    cgroup
        Read memory and CPU time from Slurm's control group of the task.
    publish
        Publish each sample on the bus, and an event at the end.
    output
        Format of the report.
    out
        Write the report to this file instead of stderr.
    """
    if daemon and (command or (job, step, task) != (None, None, None)):
        raise UsageError("--daemon takes no command, and no --job, --step or --task")
    if not (daemon or command):
        raise UsageError("COMMAND is missing; see ccpipe step --help")
    refuse_options(command[:1])
    frequencies = _INTERVALS | parse_frequencies(freq)
    selection = parse_selection(series) if hdf5 or publish else SeriesSelection.NONE
    site = where.site()
    if daemon:
        _gather_steps(
            site,
            publish=publish,
            frequencies=frequencies,
            selection=selection,
            directory=hdf5,
            output=output,
            report=out,
            use_pss=pss,
            cgroup=cgroup,
        )
        return
    described = Step(
        job=_number("--job", job, "SLURM_JOB_ID", os.getpid()),
        step=_step(step),
        node=os.environ.get("SLURMD_NODENAME") or site.hostname,
        user=os.environ.get("SLURM_JOB_USER", ""),
        node_index=_number("SLURM_NODEID", None, "SLURM_NODEID", 0),
        cpus_per_task=_number("SLURM_CPUS_PER_TASK", None, "SLURM_CPUS_PER_TASK", 1),
        profile=selection,
    )
    number = _number("--task", task, "SLURM_PROCID", 0)
    run = StepRun(described, number, frequencies, use_pss=pss, cgroup=cgroup)
    if publish:
        from ccpipe.cli.step.publish import SamplePublisher

        run.publisher = SamplePublisher(site)
    path = hdf5 / file_name(described) if hdf5 and hdf5.is_dir() else hdf5
    code = run.run(command, path)
    if run.has_started:
        write_report(run.record, described, code, run.seconds, output, out)
    sys.exit(code)


def _gather_steps(site: Site, *, publish: bool, **options: Any) -> None:
    from ccpipe.cli.step.daemon import StepDaemon

    publisher = None
    if publish:
        from ccpipe.cli.step.publish import SamplePublisher

        publisher = SamplePublisher(site, max_waiting=DAEMON_WAITING, spool=_spool(site))
    StepDaemon(site.hostname, publisher=publisher, **options).run()


def _spool(site: Site) -> Path | None:
    """Return the daemon's spool, next to the publisher's; None if it is disabled."""
    options = site.publish.spool
    if not options.enabled:
        return None
    return (Path(options.dir).parent if options.dir else state_directory()) / "steps"


def _step(text: str | None) -> str:
    """Return a step's name; Slurm's numbers of special steps become words."""
    found = text or os.environ.get("SLURM_STEP_ID", "0")
    name = _SPECIAL_STEPS.get(found, found)
    if not (name in _SPECIAL_STEPS.values() or (name.isdecimal() and int(name) < _MAX_ID)):
        raise UsageError(f"--step: not a step: {found!r:.40}")
    return name


def _number(flag: str, given: int | None, variable: str, otherwise: int) -> int:
    text = str(given) if given is not None else os.environ.get(variable, "")
    if not text:
        return otherwise
    if not (text.isascii() and text.isdecimal() and int(text) < _MAX_ID):
        error = UsageError if given is not None else ConfigError
        raise error(f"{flag}: not a number: {text!r:.40}")
    return int(text)
