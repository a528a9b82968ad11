"""Slurm's profile accounting API: time series of a step on a node, in a file that sh5util reads.

========================================== ==========================================
call of the document                       here, of ``ProfileGather``
========================================== ==========================================
init, fini                                 ``init``, ``fini``
conf_options, conf_set, conf_get           the same
node_step_start, node_step_end             the same
child_forked                               the same (the document has its text under another name)
task_start, task_end                       the same
add_sample_data(type, data)                ``add_sample_data(SeriesSelection.TASK, …)``
create_group, create_dataset, is_active    the same: Slurm since 15.08
add_sample_data(id, data, time)            the same, with the number of a dataset
========================================== ==========================================

Where the document returns SLURM_ERROR, ``ProfileGatherError`` is raised; ``CreateError`` if the
file cannot be written.

Source: Slurm Profile Accounting Plugin API (AcctGatherProfileType); Slurm since 15.08 for groups,
datasets and ``is_active``.
"""

import difflib
import enum
import logging
import re
import threading
import time as clock
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ccpipe.errors import CcpipeError, CreateError, EncodeError, UsageError
from ccpipe.node.gather.timer import PollTimer

log = logging.getLogger(__name__)


class SeriesSelection(enum.IntFlag):
    """Series, as the bits that Slurm uses."""

    NOT_SET = 0
    NONE = 1
    ENERGY = 2
    TASK = 4
    LUSTRE = 8
    NETWORK = 16
    ALL = 0xFFFFFFFF

    def includes(self, series: "SeriesSelection") -> bool:
        """Return whether a series is profiled; for NOT_SET, whether any is."""
        if self in (SeriesSelection.NOT_SET, SeriesSelection.NONE):
            return False
        return series is SeriesSelection.NOT_SET or bool(self & series)


_WORDS = {
    "none": SeriesSelection.NONE,
    "all": SeriesSelection.ALL,
    "energy": SeriesSelection.ENERGY,
    "task": SeriesSelection.TASK,
    "lustre": SeriesSelection.LUSTRE,
    "filesystem": SeriesSelection.LUSTRE,
    "network": SeriesSelection.NETWORK,
}

SERIES = {
    SeriesSelection.ENERGY: "Energy",
    SeriesSelection.TASK: "Tasks",
    SeriesSelection.LUSTRE: "Filesystem",
    SeriesSelection.NETWORK: "Network",
}
"""The names of the tables."""

_FREQUENCIES = ("task", "energy", "filesystem", "network")
_NUMBER = re.compile(r"\d{1,7}(?:\.\d{1,3})?", re.ASCII)


def parse_selection(text: str) -> SeriesSelection:
    """Read a list such as ``task,energy``; in it ``none`` wins, then ``all``.

    ``filesystem``, as the manual has it, and ``lustre``, as Slurm's parser has it, are the same.
    """
    found = SeriesSelection.NOT_SET
    words = [word.strip().lower() for word in text.split(",")]
    for word in words:
        if word not in _WORDS:
            raise UsageError(f"not a series: {word!r:.40}{_hint(word, list(_WORDS))}")
        found |= _WORDS[word]
    return SeriesSelection.NONE if "none" in words else found


def parse_frequencies(text: str) -> dict[str, float]:
    """Read seconds between samples: ``task=1,energy=5``; a number alone is of tasks, 0 is never."""
    found: dict[str, float] = {}
    for part in filter(None, text.split(",")):
        name, sign, value = part.strip().rpartition("=")
        name = name.strip().lower() if sign else "task"
        name = "filesystem" if name == "lustre" else name
        if name not in _FREQUENCIES:
            raise UsageError(f"--freq: not a series: {name!r:.40}{_hint(name, list(_FREQUENCIES))}")
        if not _NUMBER.fullmatch(value.strip()):
            raise UsageError(f"--freq {name}: not a number of seconds: {value!r:.40}")
        found[name] = float(value)
    return found


def _hint(word: str, known: list[str]) -> str:
    close = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else f" (expected {', '.join(known)})"


Number = int | float | None
FieldType = type[int] | type[float]

FLUSH_INTERVAL = 5.0
"""Interval in seconds at which samples are flushed to the file, for readers of a running step."""

_OPTIONS = {
    "ProfileHDF5Dir": "dir",
    "ProfileDir": "dir",
    "ProfileHDF5Default": "default",
    "ProfileDefaultProfile": "default",
}
_DOCUMENT_NAMES = {"watts": "Power", "cpu_freq": "CPUFrequency"}
"""Names in the document's example of a sample."""


class ProfileGatherError(CcpipeError):
    """A call of the profile API failed; Slurm returns SLURM_ERROR."""


class Conf(msgspec.Struct, frozen=True):
    """Profile settings of ``acct_gather.conf``."""

    dir: Path | None = None
    """``ProfileHDF5Dir``; without it, and without an explicit path, a step has no profile."""
    default: SeriesSelection = SeriesSelection.NONE
    """``ProfileHDF5Default``: the selection of steps without their own."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """A step on this node."""

    job: int  # the raw job id
    step: str  # a number, ``batch``, ``interactive`` or ``extern``
    node: str
    user: str = ""  # whose directory the file goes to
    node_index: int = 0
    tasks: int = 1  # on this node
    cpus_per_task: int = 1
    profile: SeriesSelection = SeriesSelection.NOT_SET


class _Dataset(msgspec.Struct):
    series: str
    task: int | str | None  # in a group, the task's number, or another name
    names: tuple[str, ...]


class ProfileGather:
    """The profile of one step on this node; any thread may call.

    Samples after the end are dropped, as in Slurm.
    """

    def __init__(self) -> None:
        self.conf = Conf()
        self.running = SeriesSelection.NOT_SET
        self.path: Path | None = None
        self._lock = threading.RLock()
        self._timer = PollTimer("profile")
        self._writer: Any = None
        self._step: Step | None = None
        self._groups: list[str] = []
        self._datasets: list[_Dataset] = []
        self._known: set[tuple[str, int | str | None]] = set()
        self._flushed = 0.0

    def init(self) -> None:
        """Reset state left by an earlier use."""
        self.fini()
        self.conf = Conf()

    def fini(self) -> None:
        """End the step if it still runs, and reset all state."""
        if self._step is not None:
            self.node_step_end()
        self.running = SeriesSelection.NOT_SET

    @staticmethod
    def conf_options() -> dict[str, type[str]]:
        """Return the options that ``acct_gather.conf`` may have: Slurm's and the document's."""
        return dict.fromkeys(_OPTIONS, str)

    def conf_set(self, table: Mapping[str, str]) -> None:
        """Set options; names are case-insensitive."""
        known = {name.lower(): field for name, field in _OPTIONS.items()}
        values: dict[str, Any] = {}
        for name, value in table.items():
            field = known.get(name.lower())
            if field is None:
                options = ", ".join(_OPTIONS)
                raise ProfileGatherError(f"not an option: {name!r:.60} (expected {options})")
            try:
                values[field] = Path(value) if field == "dir" else parse_selection(value)
            except CcpipeError as error:
                raise ProfileGatherError(f"{name}: {error}") from None
        self.conf = msgspec.structs.replace(self.conf, **values)

    def conf_get(self) -> Conf:
        return self.conf

    def node_step_start(self, step: Step, path: Path | None = None) -> None:
        """Create the step's file, in the user's directory or at `path`, if anything is profiled.

        Slurm calls it before the first ``task_start``; in the document it follows.
        """
        if self._step is not None:
            raise ProfileGatherError(f"node_step_start: step {self._step.step} still runs")
        selected = step.profile if step.profile >= SeriesSelection.NONE else self.conf.default
        self._step, self.running = step, selected
        self._timer = PollTimer("profile")
        if self.running.includes(SeriesSelection.NOT_SET) and (path or self.conf.dir):
            try:
                self._create(step, path)
            except BaseException:
                self._step, self.running = None, SeriesSelection.NOT_SET
                raise

    def _create(self, step: Step, path: Path | None) -> None:
        from ccpipe.formats.slurm_profile.names import NodeStepName
        from ccpipe.formats.slurm_profile.table import NodeStep
        from ccpipe.formats.slurm_profile.writer import NodeStepWriter

        name = NodeStepName(step.job, step.step, step.node).file_name
        self.path = path or Path(self.conf.dir or "", step.user, name)
        try:
            if path is None:
                self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._writer = NodeStepWriter(
                self.path,
                NodeStep(
                    step=step.step,
                    node=step.node,
                    job=step.job,
                    node_index=step.node_index,
                    tasks=step.tasks,
                    cpus_per_task=step.cpus_per_task,
                ),
            )
        except OSError as error:
            raise CreateError(f"{self.path}: {error.strerror}") from error
        self._flushed = clock.monotonic()

    def child_forked(self) -> None:
        """Detach from the parent's file in a child, between fork and exec."""
        if self._writer is not None:
            self._writer.detach()
        # Other threads do not exist in the child, and their locks stay locked there.
        self._lock, self._timer = threading.RLock(), PollTimer("profile")

    def task_start(self, task: int) -> None:
        """Record the start of a task; raise ProfileGatherError without a step."""
        if self._step is None:
            raise ProfileGatherError(f"task_start: task {task} belongs to no step")

    def task_end(self, pid: int) -> None:
        if self._step is None:
            raise ProfileGatherError(f"task_end: process {pid} belongs to no step")
        self._flush()

    def node_step_end(self) -> None:
        """Stop sampling and complete the file."""
        if self._step is None:
            raise ProfileGatherError("node_step_end: no step runs")
        self._timer.stop()
        with self._lock:
            writer, self._writer, self._step = self._writer, None, None
            self.running = SeriesSelection.NOT_SET
            self._groups.clear()
            self._datasets.clear()
            self._known.clear()
            try:
                if writer is not None:
                    writer.close()
            except OSError as error:
                raise CreateError(f"{self.path}: {error}") from error

    def is_active(self, series: SeriesSelection = SeriesSelection.NOT_SET) -> bool:
        """Return whether a series is profiled now; for NOT_SET, whether any is."""
        return self.running.includes(series)

    def suspend(self) -> None:
        """Stop sampling until ``resume``; the time does not count."""
        self._timer.suspend()

    def resume(self) -> None:
        self._timer.resume()

    def sample_every(
        self,
        seconds: float,
        series: SeriesSelection,
        read: Callable[[], Mapping[str, Number] | None],
    ) -> None:
        """Add a sample of a series from `read` every so many seconds, if the series is profiled."""

        def poll() -> None:
            values = read()
            if values is not None:
                self.add_sample_data(series, values)

        if self.is_active(series):
            self._timer.add(seconds, poll)
            if not self._timer.is_running:
                self._timer.start()

    def create_group(self, name: str) -> int:
        with self._lock:
            self._groups.append(name)
            return len(self._groups) - 1

    def create_dataset(
        self, name: str, parent: int, fields: Sequence[tuple[str, FieldType]]
    ) -> int:
        """Return the number of a new table with named fields, of the node or in a group.

        In the group of tasks the name is a task's number. The table is written with its first
        sample.
        """
        with self._lock:
            if parent >= len(self._groups):
                raise ProfileGatherError(f"create_dataset: {name}: unknown group {parent}")
            series = name if parent < 0 else self._groups[parent]
            task = None if parent < 0 else _in_group(name)
            if self._writer is not None:
                try:
                    self._writer.create_table(series, task, fields)
                except EncodeError as error:
                    raise ProfileGatherError(f"create_dataset: {error}") from None
                self._known.add((series, task))
            self._datasets.append(_Dataset(series, task, tuple(field for field, _ in fields)))
            return len(self._datasets) - 1

    def add_sample_data(
        self,
        which: int | SeriesSelection,
        data: Mapping[str, Number] | Sequence[Number],
        time: float | None = None,
        *,
        task: int | None = None,
    ) -> None:
        """Add a sample, taken at `time` in Unix seconds or now.

        `which` is a dataset's number, with values in the order of its fields or by their names;
        or a series, with values by name, and `task` for tasks. A series that is not profiled is
        ignored.
        """
        with self._lock:
            if self._step is None:
                return
            now = clock.time() if time is None else time
            try:
                if isinstance(which, SeriesSelection):
                    self._add_to_series(which, data, now, task)
                else:
                    self._add_to_dataset(which, data, now)
            except EncodeError as error:
                raise ProfileGatherError(f"add_sample_data: {error}") from None
            if clock.monotonic() - self._flushed >= FLUSH_INTERVAL:
                self._flush()

    def _add_to_dataset(
        self, number: int, data: Mapping[str, Number] | Sequence[Number], time: float
    ) -> None:
        if not 0 <= number < len(self._datasets):
            raise ProfileGatherError(f"add_sample_data: unknown dataset {number}")
        dataset = self._datasets[number]
        if not isinstance(data, Mapping):
            if len(data) != len(dataset.names):
                raise ProfileGatherError(
                    f"add_sample_data: {dataset.series}: {len(data)} values, "
                    f"not {len(dataset.names)}"
                )
            data = dict(zip(dataset.names, data, strict=True))
        if self._writer is not None:
            self._writer.append(dataset.series, data, time, dataset.task)

    def _add_to_series(
        self,
        selection: SeriesSelection,
        data: Mapping[str, Number] | Sequence[Number],
        time: float,
        task: int | None,
    ) -> None:
        if selection not in SERIES or not isinstance(data, Mapping):
            raise ProfileGatherError(f"add_sample_data: not a sample of a series: {selection!r}")
        if (task is None) is (selection is SeriesSelection.TASK):
            raise ProfileGatherError("add_sample_data: tasks, and only tasks, have numbers")
        if self._writer is None or not self.is_active(selection):
            return
        series = SERIES[selection]
        values = {_DOCUMENT_NAMES.get(name, name): value for name, value in data.items()}
        if (series, task) not in self._known:
            self._writer.create_table(series, task, _fields(series, values))
            self._known.add((series, task))
        self._writer.append(series, values, time, task)

    def _flush(self) -> None:
        with self._lock:
            if self._writer is not None:
                try:
                    self._writer.flush()
                except OSError as error:
                    raise CreateError(f"{self.path}: {error}") from error
                self._flushed = clock.monotonic()


def _fields(series: str, values: Mapping[str, Number]) -> list[tuple[str, FieldType]]:
    """Return the fields of a table: the usual ones, as far as the first sample has them.

    Fields that only some nodes have, of GPUs and sensors, follow the first sample.
    """
    from ccpipe.formats.slurm_profile.series import series_type

    kind = series_type(series)
    usual = [field for field in kind.fields if field.name in values]
    more = [found for name in values if (found := kind.field(name)) and found not in usual]
    unknown = [name for name in values if kind.field(name) is None]
    if unknown:
        raise EncodeError(f"{series}: no field {unknown[0]!r:.60}")
    return [(field.name, field.type) for field in [*usual, *more]]


def _in_group(name: str) -> int | str:
    """Return a name as a task number if it is one, else unchanged."""
    is_number = name.isascii() and name.isdecimal() and str(int(name)) == name
    return int(name) if is_number else name
