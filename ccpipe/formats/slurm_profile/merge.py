"""Merges the node-step files of a job into one file, like sh5util but safely.

sh5util truncates an earlier merge, deletes its input and mixes the runs of a requeued job. Here
the output is renamed into place when it is complete and on disk, and keeps its earlier contents;
merging the same files again changes nothing; and input is deleted only on request, after the
output was verified.
"""

import contextlib
import fcntl
import functools
import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ccpipe.errors import DataError, UnavailableError
from ccpipe.formats.slurm_profile.hdf5 import DamagedProfileError, ProfileError
from ccpipe.formats.slurm_profile.names import BATCH, parse_file_name
from ccpipe.formats.slurm_profile.reader import NODES, RUNS, STEPS, Profile, open_profile
from ccpipe.formats.slurm_profile.table import NodeStep, Table
from ccpipe.formats.slurm_profile.writer import (
    TableWriter,
    create_file,
    make_path,
    write_attributes,
    write_number,
)

CHUNK_BYTES = 2**19
"""Chunk size of the output: many times as fast to read and write as Slurm's small chunks."""

MAX_FILES = 256
"""Input files whose structure is kept in memory; if there are more, each is opened twice."""

TOLERANCE = 30
"""Seconds by which clocks, or starts of a step, may differ between two nodes."""

Identity = tuple[int, int, int, int]
"""Device, inode, size and time of change."""


class MergeReport(msgspec.Struct):
    """The result of a merge."""

    output: Path
    node_steps: list[NodeStep] = []
    """All node-steps in the output."""
    added: list[NodeStep] = []
    """Those that are new, or have more rows than before."""
    failures: list[Exception] = []
    """The errors of files that could not be read, or only in part."""
    deleted: list[Path] = []
    kept: dict[Path, str] = {}
    """Files that were not deleted despite `delete_inputs`, with the reason."""

    @property
    def changed(self) -> bool:
        return bool(self.added)


class NodeStepSpan(NamedTuple):
    """A node-step with start and end, in Unix seconds."""

    node_step: NodeStep
    start: float
    end: float


class _Part(msgspec.Struct):
    """A node-step in one file."""

    path: Path
    node_step: NodeStep
    """As stored in the file."""
    span: NodeStepSpan
    rows: int
    run: int = 0

    @property
    def key(self) -> tuple[str, str, str]:
        return self.node_step.step, self.node_step.node, self.node_step.start_time


def find_node_steps(directory: str | PathLike[str], job: int) -> list[Path]:
    """Return the node-step files of a job in a user's directory, including earlier runs.

    Raises OSError if the directory cannot be read.
    """
    names = {path: parse_file_name(path.name) for path in Path(directory).iterdir()}
    return sorted(path for path, name in names.items() if name is not None and name.job == job)


def merge(
    inputs: Iterable[str | PathLike[str]],
    output: str | PathLike[str],
    *,
    steps: Sequence[str] = (),
    delete_inputs: bool = False,
) -> MergeReport:
    """Merge node-step files, or job files, into the job file `output`, keeping its contents.

    Of a duplicate node-step, the one with more rows is taken. Unreadable files are skipped and
    listed in the report. `steps` selects steps of the inputs. `delete_inputs` deletes each complete
    file whose rows are found when the output is read back. Raises DataError for files of two jobs;
    ProfileError if `output` exists and cannot be read (it is left unchanged); UnavailableError
    while another process merges into the same file.
    """
    paths = [Path(path) for path in inputs]
    jobs = {name.job for path in paths if (name := parse_file_name(path.name))}
    if len(jobs) > 1:
        raise DataError(f"node-step files of the jobs {sorted(jobs)} cannot make one job file")
    target = Path(output)
    report, files = MergeReport(target), _Files()
    with exclusive_draft(target) as draft:
        errors: list[Exception] = []
        before = _read_parts([target], files, errors) if target.exists() else []
        for error in errors:
            raise error
        found = _read_parts(paths, files, report.failures)
        found = [part for part in found if not steps or part.node_step.step in steps]
        parts = _choose(before + found)
        report.added = [part.node_step for part in parts if part.path != target]
        report.node_steps = [part.node_step for part in parts]
        if report.changed:
            _write(draft, parts, files, report)
            rename_complete(draft, target)
        if delete_inputs and target.exists():
            _delete(paths, target, files.identities, report)
    return report


class _Files:
    """A cache of open profiles, of which mostly only the structure is in memory."""

    def __init__(self) -> None:
        self.open = functools.lru_cache(MAX_FILES)(self._open)
        self.identities: dict[Path, Identity] = {}

    def _open(self, path: Path) -> Profile:
        profile = open_profile(path)
        self.identities.setdefault(path, profile.identity)
        return profile


def _read_parts(paths: Iterable[Path], files: _Files, failures: list[Exception]) -> list[_Part]:
    parts: list[_Part] = []
    for path in paths:
        try:
            profile = files.open(path)
        except (ProfileError, OSError) as error:
            failures.append(error)
            continue
        failures += profile.damage
        for node_step in profile.node_steps:
            if not node_step.step:
                reason = "neither the file's name nor its contents identify the step"
                failures.append(ProfileError(path, reason))
                continue
            tables = profile.tables_of(node_step)
            try:
                span = _span(node_step, tables)
            except ProfileError as error:
                failures.append(error)
                continue
            rows = sum(len(table) for table in tables)
            parts.append(_Part(path, node_step, span, rows))
    return parts


def _span(node_step: NodeStep, tables: list[Table]) -> NodeStepSpan:
    """Return the time span of a node-step: from its samples, or else its start."""
    starts: list[float] = []
    ends: list[float] = []
    for table in tables:
        if len(table):
            first, last = table.source.read(0, 1), table.source.read(len(table) - 1, len(table))
            starts.append(float(first["EpochTime"][0]) - float(first["ElapsedTime"][0]))
            ends.append(float(last["EpochTime"][0]))
    local = node_step.local_start()
    start = min(starts, default=local.timestamp() if local else 0.0)
    return NodeStepSpan(node_step, start, max(ends, default=start))


def _choose(parts: list[_Part]) -> list[_Part]:
    """Take the longest part of each node-step, and sort them."""
    best: dict[tuple[str, str, str], _Part] = {}
    for part in parts:
        if part.key not in best or part.rows > best[part.key].rows:
            best[part.key] = part
    chosen = list(best.values())
    for part, run in zip(chosen, count_runs([part.span for part in chosen]), strict=True):
        part.run = run
    return sorted(chosen, key=lambda part: (part.run, *_step_order(part.node_step)))


def _step_order(node_step: NodeStep) -> tuple[int, int, str, str]:
    """Return a sort key in sh5util's order: batch first, then by number."""
    step = node_step.step
    number = int(step) if step.isdecimal() else 0
    return 0 if step == BATCH else 2 - step.isdecimal(), number, step, node_step.node


def _write(draft: Path, parts: list[_Part], files: _Files, report: MergeReport) -> None:
    last = max(part.run for part in parts)
    nodes: dict[tuple[int, str], int] = {}
    with create_file(draft, locking=False, rdcc_nbytes=0) as file:
        for part in parts:
            root = _run_group(file, part.run, last)
            step = make_path(root, [STEPS, part.node_step.step])
            tables = files.open(part.path).tables_of(part.node_step)
            damage = _copy_node(make_path(step, [NODES, part.node_step.node]), part, tables)
            if damage and part.path == report.output:
                raise damage[0]
            report.failures += damage
            key = part.run, part.node_step.step
            nodes[key] = nodes.get(key, 0) + 1
        for (run, step_name), count in nodes.items():
            step = make_path(_run_group(file, run, last), [STEPS, step_name])
            write_number(step, "Number of Nodes", count)
        for run in {run for run, _ in nodes}:
            steps = sum(run == other for other, _ in nodes)
            write_number(_run_group(file, run, last), "Number of Steps", steps)


def _run_group(file: Any, run: int, last: int) -> Any:
    """Return the group of a run's steps; for the last run, the one that sh5util reads."""
    return file if run == last else make_path(file, [RUNS, str(run)])


def _copy_node(group: Any, part: _Part, tables: list[Table]) -> list[DamagedProfileError]:
    damage: list[DamagedProfileError] = []
    write_attributes(group, part.node_step)
    for table in tables:
        chunks = -(-len(table) * table.dtype.itemsize // CHUNK_BYTES)
        rows = max(1, -(-len(table) // max(1, chunks)))
        parent = group if table.task is None else make_path(group, [table.series])
        copy = TableWriter(parent, table.task or table.series, table.dtype, chunk=rows)
        for block in table.blocks(damage=damage):
            copy.append(block)
    return damage


def _delete(
    paths: list[Path], target: Path, identities: dict[Path, Identity], report: MergeReport
) -> None:
    with open_profile(target) as merged:
        for path in paths:
            reason = "it could not be read"
            if path in identities:
                reason = delete_merged(path, identities[path], merged)
            if reason:
                report.kept[path] = reason
            else:
                report.deleted.append(path)


def delete_merged(path: Path, identity: Identity, merged: Profile) -> str:
    """Delete a file that `merged` replaces; return the reason if it is kept.

    `identity` is the file's identity when it was merged.
    """
    try:
        with open_profile(path) as profile:
            reason = _reason_to_keep(profile, merged)
            if not reason and identity != profile.identity:
                reason = "it was written to meanwhile"
        if not reason:
            path.unlink()
    except (OSError, ProfileError) as error:
        return str(error)
    return reason


def _reason_to_keep(profile: Profile, merged: Profile) -> str:
    if profile.damage:
        return "not all of it can be read"
    if profile.closed is False:
        return "its writer has not finished it"
    if _is_locked(Path(profile.path)):
        return "a process has it open for writing"
    there = {(part.step, part.node, part.start_time): part for part in merged.node_steps}
    for node_step in profile.node_steps:
        copy = there.get((node_step.step, node_step.node, node_step.start_time))
        if copy is None:
            return f"the output does not have step {node_step.step} of {node_step.node}"
        theirs = {(table.series, table.task): table for table in merged.tables_of(copy)}
        for table in profile.tables_of(node_step):
            other = theirs.get((table.series, table.task))
            if other is None or not _same_rows(table, other):
                return f"the output has other rows in {table.path}"
    return ""


def _same_rows(first: Table, second: Table) -> bool:
    """Return whether two tables are bitwise equal."""
    if first.dtype != second.dtype:
        return False
    pairs = itertools.zip_longest(first.blocks(), second.blocks())
    return all(a is not None and b is not None and a.tobytes() == b.tobytes() for a, b in pairs)


def _is_locked(path: Path) -> bool:
    """Return whether a libhdf5, such as Slurm's plug-in, has the file open for writing."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def count_runs(spans: Sequence[NodeStepSpan]) -> list[int]:
    """Return the run of each node-step, from 0.

    A run begins with a node-step that conflicts with an earlier one of its step: a second batch
    step, the same node index in the step, or a start long after the other's end.
    """
    found = [0] * len(spans)
    run = 0
    seen: dict[str, _Step] = {}
    for position in sorted(range(len(spans)), key=lambda position: spans[position].start):
        span = spans[position]
        step = seen.get(span.node_step.step)
        if step is not None and step.excludes(span):
            run += 1
            seen.clear()
        seen.setdefault(span.node_step.step, _Step()).add(span)
        found[position] = run
    return found


class _Step:
    """The node-steps of one step in one run."""

    def __init__(self) -> None:
        self._indices: set[int] = set()
        self._end = 0.0

    def excludes(self, span: NodeStepSpan) -> bool:
        """Return whether a node-step cannot belong to this step's run."""
        node_step = span.node_step
        return (
            node_step.step == BATCH
            or node_step.node_index in self._indices
            or span.start > self._end + TOLERANCE
        )

    def add(self, span: NodeStepSpan) -> None:
        if span.node_step.node_index is not None:
            self._indices.add(span.node_step.node_index)
        self._end = max(self._end, span.end)


@contextlib.contextmanager
def exclusive_draft(target: Path) -> Iterator[Path]:
    """Yield the path of a draft, locked until it is renamed or abandoned."""
    draft = target.with_name(f".{target.name}.merging")
    while True:
        fd = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            raise UnavailableError(f"{target}: another process is merging into it") from None
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(fd), draft.stat()):
                break
        os.close(fd)  # the other process has just renamed the file we opened
    try:
        yield draft
    finally:
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(fd), draft.stat()):
                draft.unlink()
        os.close(fd)


def rename_complete(draft: Path, target: Path) -> None:
    """Rename a complete file into place, after syncing it to disk."""
    _sync(draft)
    draft.rename(target)
    _sync(target.parent)


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
