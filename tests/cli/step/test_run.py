"""One run of a command as a task of a step, and its report."""

import resource
import signal
import sys
import threading
from pathlib import Path

import pytest

from ccpipe.cli.step.publish import SamplePublisher
from ccpipe.cli.step.report import TABLE, describe, table, write_report
from ccpipe.cli.step.run import BY_SIGNAL, NOT_EXECUTABLE, NOT_FOUND, StepRun
from ccpipe.config import Bus, Site
from ccpipe.errors import CreateError
from ccpipe.node.gather.jobacct import JobacctInfo, TaskId, create
from ccpipe.node.gather.profile import SeriesSelection, Step

NEVER = dict.fromkeys(("task", "energy", "filesystem", "network"), 0.0)
STEP = Step(job=17, step="0", node="n1", profile=SeriesSelection.TASK)


def run(*command: str, profile: Path | None = None, **frequencies: float) -> tuple[int, StepRun]:
    one = StepRun(STEP, 0, NEVER | frequencies)
    return one.run(command, profile), one


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (("true",), 0),
        (("sh", "-c", "exit 7"), 7),
        (("sh", "-c", "kill -KILL $$"), BY_SIGNAL + signal.SIGKILL),
        (("/no/such/program",), NOT_FOUND),
        (("/etc/passwd",), NOT_EXECUTABLE),
    ],
)
def test_exit_codes_follow_shells(
    command: tuple[str, ...], code: int, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(*command)[0] == code
    assert ("ccpipe: /" in capfd.readouterr().err) == (code in (NOT_FOUND, NOT_EXECUTABLE))


def test_record_has_counters_of_kernel() -> None:
    """Also if no poll ever saw the command: they are read when the process has ended."""
    code, one = run(sys.executable, "-c", "x = b'x' * 50_000_000; sum(range(2_000_000))")
    assert code == 0
    assert one.record.user > 0
    assert one.seconds > 0


def test_peak_memory_excludes_our_process_before_exec() -> None:
    """The kernel keeps the peak from before the process executed the command."""
    inherited = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    small = run("sleep", "1", task=0.1)[1].record.usage_in["mem"].max
    assert small is not None
    assert 0 < small < 8 * 2**20 < inherited
    size = 2 * inherited
    large = run(sys.executable, "-c", f"x = b'x' * {size}")[1].record.usage_in["mem"].max
    assert large is not None
    assert large >= size


def test_signal_handlers_are_restored() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR1)]
    run("true")
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR1)] == before


class Ends(SamplePublisher):
    """Notes which threads run when the end of a step is published."""

    def publish_end(self, step: Step, info: JobacctInfo) -> None:
        self.threads = {thread.name for thread in threading.enumerate()}


def test_run_takes_no_sample_after_end_of_step() -> None:
    """It would be published after the event, or count as not published."""
    step = Step(job=17, step="0", node="n1", profile=SeriesSelection.NETWORK)
    one = StepRun(step, 0, NEVER | {"task": 0.05, "network": 0.05})
    one.publisher = ends = Ends(Site(bus=Bus(servers=["nats://127.0.0.1:1"])), max_waiting=0)
    assert one.run(["sleep", "0.2"]) == 0
    assert "publish" in ends.threads
    assert not {"profile", "jobacct"} & ends.threads


def test_table_has_columns_of_sacct() -> None:
    info = create(TaskId(0, 2))
    info.update("mem", 139096 * 1024)
    step = Step(job=17, step="batch", node="c3", node_index=2)
    row = describe(info, step, 0, 1.23456)
    assert (row["JobID"], row["State"], row["MaxRSSNode"]) == ("17.batch", "COMPLETED", "c3")
    text = table(row)
    assert all(name in text for names in TABLE for name in names)
    assert "139096K" in text
    assert max(map(len, text.splitlines())) <= 80


def test_unwritable_report_is_error_with_path(tmp_path: Path) -> None:
    with pytest.raises(CreateError, match="nothing/report"):
        write_report(create(), STEP, 1, 1.0, "json", tmp_path / "nothing" / "report")
