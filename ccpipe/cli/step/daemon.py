"""``ccpipe step --daemon``: measures the steps that Slurm runs on this node."""

import contextlib
import logging
import os
import resource
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from stat import S_ISDIR
from typing import TYPE_CHECKING

import msgspec

from ccpipe.cli.step.node_series import NodeSeries, Values
from ccpipe.cli.step.report import add_report
from ccpipe.cli.step.run import file_name, record_samples
from ccpipe.errors import CcpipeError, CreateError, UnavailableError
from ccpipe.node.agent import systemd
from ccpipe.node.gather.jobacct import TaskPoller
from ccpipe.node.gather.jobacct.poller import TaskSample
from ccpipe.node.gather.profile import ProfileGather, SeriesSelection, Step
from ccpipe.node.gather.steps import RunningStep, StepFinder, StepGather
from ccpipe.node.gather.timer import PollTimer
from ccpipe.terminal import note

if TYPE_CHECKING:
    from ccpipe.cli.step.publish import SamplePublisher

log = logging.getLogger(__name__)

SCAN_SECONDS = 1.0
"""Interval at which started and ended steps are detected."""

STATUS_SECONDS = 10.0
"""Interval of notifications to systemd, if it has no watchdog."""

MAX_FILES = 2**16
"""Limit on open files, two for each process of a task; most systems default to 1024."""


class StepDaemon:
    """Gathers steps until a signal arrives.

    `frequencies` are seconds between samples of ``task``, ``energy``, ``filesystem`` and
    ``network``; `directory` has a directory of profiles for each user, of the series of
    `selection`, of which the node's are also published. The end of each step is reported to the
    file `report` or stdout. `root` is the file system to read, such as a captured tree.
    """

    def __init__(
        self,
        hostname: str,
        frequencies: dict[str, float],
        *,
        selection: SeriesSelection = SeriesSelection.NONE,
        directory: Path | None = None,
        publisher: "SamplePublisher | None" = None,
        output: str = "json",
        report: Path | None = None,
        use_pss: bool = False,
        cgroup: bool = False,
        root: str = "/",
    ) -> None:
        self._frequencies, self._selection, self._directory = frequencies, selection, directory
        self._publisher, self._output, self._report = publisher, output, report
        self._series = NodeSeries(root=root)
        self._profiles: dict[Step, ProfileGather] = {}

        def make_poller(on_poll: Callable[[list[TaskSample]], object]) -> TaskPoller:
            energy = self._series.energy_used
            return TaskPoller(
                use_pss=use_pss, cgroup=cgroup, energy=energy, on_poll=on_poll, root=root
            )

        self._steps = StepGather(
            StepFinder(hostname, root=root),
            make_poller,
            on_start=self._begin,
            on_samples=self._take,
            on_end=self._end,
            root=root,
        )

    def run(self) -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        files = MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_FILES)
        if soft != resource.RLIM_INFINITY and soft < files:
            resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
        stop = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        note("ccpipe: watching for Slurm steps; stop with SIGTERM")
        self.run_until(stop)

    def run_until(self, stop: threading.Event) -> None:
        """Measure until an event is set; profiles of running steps are completed."""
        timer = PollTimer("steps")
        timer.add(SCAN_SECONDS, self._steps.scan)
        timer.add(self._frequencies["task"], self._steps.poll)
        for name, series, read in self._series.samplers():
            if self._selection.includes(series):
                timer.add(self._frequencies[name], self._sampler(series, read))
        timer.add((systemd.watchdog() or 2 * STATUS_SECONDS) / 2, self._notify)
        timer.start()
        systemd.notify("READY=1")
        stop.wait()
        systemd.notify("STOPPING=1")
        timer.stop()
        self._steps.close()
        for step, profile in self._profiles.items():
            with _confined_to_profile(step):
                profile.fini()
        if self._publisher is not None:
            self._publisher.close()

    def _notify(self) -> None:
        systemd.notify("WATCHDOG=1", f"STATUS={self._status()}")

    def _status(self) -> str:
        steps = self._steps.steps.values()
        suspended = sum(step.suspended_since is not None for step in steps)
        return f"gathering: {len(steps)} steps, {suspended} suspended"

    def _sampler(
        self, series: SeriesSelection, read: Callable[[], Values | None]
    ) -> Callable[[], None]:
        def sample() -> None:
            values = read()
            if values is None:
                return
            running = [one for one in self._steps.steps.values() if one.suspended_since is None]
            for step in [one.step for one in running]:
                if self._publisher is not None:
                    self._publisher.publish_node(step, series, values)
                if profile := self._profiles.get(step):
                    with _confined_to_profile(step):
                        profile.add_sample_data(series, values)

        return sample

    def _begin(self, running: RunningStep) -> None:
        step = running.step
        log.info("step %d.%s of %s", step.job, step.step, step.user)
        if self._directory is None:
            return
        profile = ProfileGather()
        profile.init()
        with _confined_to_profile(step):
            path = own_directory(self._directory, step.user) / file_name(step)
            profile.node_step_start(msgspec.structs.replace(step, profile=self._selection), path)
            self._profiles[step] = profile
            path.chmod(0o600)
            with contextlib.suppress(PermissionError):  # it needs root, or CAP_CHOWN
                os.chown(path, running.uid, -1)

    def _take(self, running: RunningStep, samples: list[TaskSample]) -> None:
        if self._publisher is not None:
            self._publisher.publish(running.step, samples)
        if profile := self._profiles.get(running.step):
            with _confined_to_profile(running.step):
                record_samples(profile, samples)

    def _end(self, running: RunningStep) -> None:
        step, record = running.step, running.record
        if self._publisher is not None:
            self._publisher.publish_end(step, record)
        if profile := self._profiles.pop(step, None):
            with _confined_to_profile(step):
                profile.fini()
        try:
            add_report(record, step, running.seconds, self._output, self._report)
        except CreateError as error:
            log.warning("the report of step %d.%s is lost: %s", step.job, step.step, error)


def own_directory(directory: Path, user: str) -> Path:
    """Return the directory of a user's profiles, which only this program's user may write to.

    Slurm's plug-in writes as the user into a directory of the user's. A program that runs as root
    must not: a link there could lead it anywhere. Raises UnavailableError for a directory of
    another user.
    """
    found = directory / user
    found.mkdir(parents=True, exist_ok=True)
    stat = found.lstat()
    if stat.st_uid != os.geteuid() or not S_ISDIR(stat.st_mode):
        raise UnavailableError(f"{found} belongs to another user: use another --hdf5 directory")
    found.chmod(0o755)  # whatever the umask is: the files are for their users
    return found


@contextlib.contextmanager
def _confined_to_profile(step: Step) -> Iterator[None]:
    """Confine errors of a profile to that profile."""
    try:
        yield
    except (CcpipeError, OSError) as error:
        log.warning("profile of step %d.%s: %s", step.job, step.step, error)
