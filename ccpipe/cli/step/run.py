"""Runs a command under both gather plug-ins."""

import contextlib
import functools
import os
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ccpipe.cli.step.node_series import NodeSeries, Values
from ccpipe.errors import CcpipeError
from ccpipe.node.gather.jobacct import (
    DataType,
    JobacctInfo,
    Rusage,
    TaskId,
    TaskPoller,
    aggregate,
    create,
    set_info,
)
from ccpipe.node.gather.jobacct.poller import TaskSample
from ccpipe.node.gather.profile import ProfileGather, SeriesSelection, Step
from ccpipe.terminal import note

if TYPE_CHECKING:
    from ccpipe.cli.step.publish import SamplePublisher

NOT_FOUND, NOT_EXECUTABLE, BY_SIGNAL = 127, 126, 128
"""Exit codes, as in shells."""

PASSED_ON = ("SIGTERM", "SIGHUP", "SIGINT", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGCONT")
_OF_TERMINAL = {signal.SIGINT, signal.SIGQUIT}
"""Signals that a terminal also sends to the command."""


class StepRun:
    """One run of a command, as one task of a step."""

    def __init__(
        self,
        step: Step,
        task: int,
        frequencies: dict[str, float],
        *,
        use_pss: bool = False,
        cgroup: bool = False,
    ) -> None:
        """Prepare; `frequencies` are seconds between samples of ``task``, ``energy`` and so on."""
        self.record: JobacctInfo = create()
        self.has_started = False
        self.seconds = 0.0
        """Run time, without the time that it was stopped."""
        self.publisher: SamplePublisher | None = None
        self._stopped = 0.0
        self._step, self._task, self._frequencies = step, task, frequencies
        self._series = NodeSeries()
        self._profile = ProfileGather()
        self._poller = TaskPoller(
            use_pss=use_pss, cgroup=cgroup, energy=self._series.energy_used, on_poll=self._on_poll
        )

    def run(self, command: Sequence[str], profile: Path | None = None) -> int:
        """Run the command to its end; return its exit code.

        Raises CcpipeError if the profile cannot be written.
        """
        self._profile.init()
        self._profile.node_step_start(self._step, profile)
        try:
            self._sample_node()
            self._poller.set_proctrack_container_id(os.getpid())
            self._poller.start_poll(self._frequencies["task"])
            return self._run(command)
        finally:
            with contextlib.suppress(CcpipeError):
                self._poller.end_poll()
            try:
                self._profile.fini()  # nothing is sampled from now on
            finally:
                if self.publisher is not None:
                    self.publisher.publish_end(self._step, self.record)
                    self.publisher.close()

    def _sample_node(self) -> None:
        for name, series, read in self._series.samplers():
            take = functools.partial(self._take_node, series, read)
            self._profile.sample_every(self._frequencies[name], series, take)

    def _take_node(
        self, series: SeriesSelection, read: Callable[[], Values | None]
    ) -> Values | None:
        values = read()
        if values is not None and self.publisher is not None:
            self.publisher.publish_node(self._step, series, values)
        return values

    def _run(self, command: Sequence[str]) -> int:
        self._profile.task_start(self._task)
        began = time.monotonic()
        with _forwarded_signals() as started:
            try:
                process = subprocess.Popen(command)  # noqa: S603 - the user's command
            except OSError as error:
                note(f"ccpipe: {command[0]}: {error.strerror}", "red")
                return NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
            self.has_started = True
            started(process.pid)
            inherited = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            task_id = TaskId(self._task, self._step.node_index)
            self._poller.add_task(process.pid, task_id, poll=True)
            self._wait(process.pid)
            info = self._poller.remove_task(process.pid)  # polls while it is a zombie
            _, status, used = os.wait4(process.pid, 0)
        self.seconds = time.monotonic() - began - self._stopped
        code = os.waitstatus_to_exitcode(status)
        process.returncode = code
        if info is not None:
            micro = 10**6
            # Until it executed the command the child was as large as this process, and the kernel
            # keeps that as its peak; the polls know what is below.
            is_own = used.ru_maxrss > inherited
            rusage = Rusage(
                round(used.ru_utime * micro),
                round(used.ru_stime * micro),
                used.ru_maxrss * 1024 if is_own else 0,
                used.ru_majflt,
            )
            set_info(info, DataType.RUSAGE, rusage)
            aggregate(self.record, info)
        self._profile.task_end(process.pid)
        return code if code >= 0 else BY_SIGNAL - code

    def _wait(self, pid: int) -> None:
        """Wait until the process ends, leaving it a zombie; pause sampling while it is stopped."""
        events = os.WEXITED | os.WSTOPPED | os.WCONTINUED
        since: float | None = None
        while True:
            found = os.waitid(os.P_PID, pid, events | os.WNOWAIT)
            if since is not None:
                self._stopped += time.monotonic() - since
                since = None
            if found is None or found.si_code in (os.CLD_EXITED, os.CLD_KILLED, os.CLD_DUMPED):
                return
            os.waitid(os.P_PID, pid, os.WSTOPPED | os.WCONTINUED | os.WNOHANG)
            if found.si_code == os.CLD_STOPPED:
                since = time.monotonic()
                self._poller.suspend_poll()
                self._profile.suspend()
            else:
                self._poller.resume_poll()
                self._profile.resume()

    def _on_poll(self, samples: list[TaskSample]) -> None:
        record_samples(self._profile, samples)
        if self.publisher is not None:
            self.publisher.publish(self._step, samples)


def file_name(step: Step) -> str:
    from ccpipe.formats.slurm_profile.names import NodeStepName

    return NodeStepName(step.job, step.step, step.node).file_name


def record_samples(profile: ProfileGather, samples: list[TaskSample]) -> None:
    if profile.is_active(SeriesSelection.TASK):
        for sample in samples:
            profile.add_sample_data(
                SeriesSelection.TASK, sample.values, sample.time, task=sample.id.task
            )


@contextlib.contextmanager
def _forwarded_signals() -> Iterator[Callable[[int], None]]:
    """Forward signals to the process, once it has started.

    A terminal's signals reach it anyway; earlier ones are delivered when it has started.
    """
    pids: list[int] = []
    early: list[int] = []

    def forward(number: int, _: object = None) -> None:
        if not pids:
            early.append(number)
        elif not (number in _OF_TERMINAL and _in_foreground()):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pids[0], number)

    def started(pid: int) -> None:
        pids.append(pid)
        while early:
            forward(early.pop(0))

    numbers = [signal.Signals[name] for name in PASSED_ON]
    before = {number: signal.signal(number, forward) for number in numbers}
    try:
        yield started
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def _in_foreground() -> bool:
    """Return whether we are in the terminal's foreground, so that the command gets its signals."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)
