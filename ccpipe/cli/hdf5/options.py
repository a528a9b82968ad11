"""Options shared by the subcommands of ``ccpipe hdf5``: files and tables."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from ccpipe.atomic_file import replacing
from ccpipe.cli.console.options import NODES, expand_patterns
from ccpipe.errors import CreateError, DataError, MissingInputError, UsageError
from ccpipe.terminal import Progress, in_bytes, listed, note, open_stdout

if TYPE_CHECKING:  # they load numpy, and --help must not
    from ccpipe.formats.slurm_profile.names import JobSelection
    from ccpipe.formats.slurm_profile.table import Table

_SERIES = {"lustre": "Filesystem", "task": "Tasks"}
"""Aliases of series: used in Slurm's documentation, but refused by sh5util."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Tables:
    """Selection of tables and files."""

    job: Annotated[tuple[str, ...], Parameter(alias="-j")] = ()
    """Jobs or steps, such as 17 or 17.0; without --input the files are ./job_<id>.h5."""

    input: Annotated[tuple[Path, ...], Parameter(alias="-i")] = ()
    """Job files or node-step files."""

    series: Annotated[tuple[str, ...], Parameter(alias="-s")] = ()
    """Energy, Filesystem, Network or Tasks, case-insensitive; default: all."""

    node: Annotated[tuple[str, ...], NODES, Parameter(alias="-N")] = ()
    """Nodes: a node list such as n[1-3,7], or a pattern with * or ?; default: all."""

    task: tuple[str, ...] = ()
    """Numbers of tasks."""

    all_runs: bool = False
    """Include earlier runs of a requeued job."""

    fix: tuple[str, ...] = ()
    """Correct known errors of Slurm's plug-ins; `ccpipe hdf5 list` lists the rules."""

    def job_id(self) -> str | None:
        """Return the job, unless several are named, or none."""
        jobs = {one.job for one in parse_selections(self.job)}
        return str(jobs.pop()) if len(jobs) == 1 else None

    @contextlib.contextmanager
    def open(self) -> "Iterator[list[Table]]":
        """Open the files; yield the selected tables, and close the files afterwards.

        Raises UsageError without a file, and for an unknown rule; DataError if no table matches.
        """
        from ccpipe.formats.slurm_profile.corrections import CORRECTIONS
        from ccpipe.formats.slurm_profile.reader import last_runs, open_profile

        for name in self.fix:
            if name not in CORRECTIONS:
                raise UsageError(f"--fix {name}: expected {listed(list(CORRECTIONS))}")
        chosen = parse_selections(self.job)
        paths = self.input or tuple(Path(f"job_{one.job_text}.h5") for one in chosen)
        if not paths:
            raise UsageError("no file given: use --input FILE or --job JOB")
        with contextlib.ExitStack() as stack:
            tables: list[Table] = []
            for path in paths:
                try:
                    profile = stack.enter_context(open_profile(path))
                except OSError as error:
                    raise MissingInputError(f"{path}: {error.strerror}") from error
                for damage in profile.damage:
                    note(f"ccpipe: {damage}", "yellow")
                tables += profile.tables if self.all_runs else last_runs(profile.tables)
            nodes = expand_patterns(self.node)
            found = [table for table in tables if self._wanted(table, chosen, nodes)]
            if tables and not found:
                names = sorted({table.series for table in tables})
                raise DataError(f"no table matches; the files have {listed(names)}")
            yield [self._fixed(table) for table in found]

    def _wanted(self, table: "Table", jobs: "Sequence[JobSelection]", nodes: Sequence[str]) -> bool:
        step = table.node_step
        series = {_SERIES.get(name.lower(), name).lower() for name in self.series}
        steps = {
            one.step for one in jobs if step.job in (None, one.job)
        }  # steps in a job file have no job ID
        return (
            (not series or table.series.lower() in series)
            and (not nodes or any(fnmatchcase(step.node, node) for node in nodes))
            and (not self.task or table.task in self.task)
            and (not jobs or None in steps or step.step in steps)
        )

    def _fixed(self, table: "Table") -> "Table":
        from ccpipe.formats.slurm_profile.corrections import CORRECTIONS

        rules = [CORRECTIONS[name] for name in self.fix]
        return table.with_rules(*(rule.apply for rule in rules if rule.series == table.series))


def parse_selections(texts: Sequence[str]) -> "list[JobSelection]":
    """Read jobs from a flag that may be repeated; raises UsageError."""
    from ccpipe.formats.slurm_profile.names import parse_jobs

    try:
        return [one for text in texts for one in parse_jobs(text)]
    except DataError as error:
        raise UsageError(f"--job: {error}") from None


def configured_directory() -> Path | None:
    """Return ``ProfileHDF5Dir`` of the ``acct_gather.conf`` next to ``$SLURM_CONF``."""
    conf = Path(os.environ.get("SLURM_CONF", "/etc/slurm/slurm.conf")).with_name("acct_gather.conf")
    try:
        lines = conf.read_text(errors="replace").splitlines()
    except OSError:
        return None
    for line in lines:
        name, _, value = line.partition("#")[0].partition("=")
        if name.strip().lower() == "profilehdf5dir" and value.strip():
            return Path(value.strip())
    return None


def write_output(pieces: Iterator[bytes], path: Path | None) -> None:
    """Write to stdout, or to a file that appears when it is complete.

    Raises CreateError if the file cannot be written.
    """
    if path is None:
        with open_stdout() as stdout:
            stdout.writelines(pieces if stdout.isatty() else _shown(pieces))
        return
    try:
        with replacing(path) as draft, draft.open("wb") as file:
            file.writelines(_shown(pieces))
    except OSError as error:
        raise CreateError(f"{path}: {error.strerror}") from None


def _shown(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Show the progress of what is not printed on a terminal."""
    progress, size = Progress(), 0
    for piece in pieces:
        yield piece
        size += len(piece)
        progress.show(f"{in_bytes(size)} written")
    progress.clear()
