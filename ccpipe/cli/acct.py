"""``ccpipe acct``: what Grid Engine's jobs used, from the accounting files themselves."""

import itertools
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NoReturn, get_args

from cyclopts import App, Parameter

from ccpipe.cli import acct_qacct as layout
from ccpipe.cli import acct_table as own
from ccpipe.cli.acct_files import Block, Files, default_files
from ccpipe.cli.acct_options import Filters, group_name
from ccpipe.cli.acct_records import read_records
from ccpipe.cli.output import note
from ccpipe.errors import DataError, UsageError
from ccpipe.formats.gridengine import Accounting

if TYPE_CHECKING:  # both need pyarrow, and `ccpipe acct --help` must not
    from ccpipe.translate.accounting_selection import Selection
    from ccpipe.translate.accounting_sums import Total

acct = App(name="acct", default_parameter=Parameter(negative=(), show_default=False))

Key = Literal[
    "host", "queue", "group", "owner", "project", "department", "pe", "slots", "ar", "account",
    "name", "job", "task", "outcome", "day", "month",
]  # fmt: skip

NOT_FOUND = 1
"""The exit code where no record is what was asked for, as qacct and grep have it."""


@acct.default
def sums(
    *files: Annotated[Path, Parameter(allow_leading_hyphen=True)],
    file: Annotated[tuple[Path, ...], Parameter(alias="-f", allow_leading_hyphen=True)] = (),
    filters: Filters = Filters(),  # noqa: B008 - frozen
    by: tuple[Key, ...] = (),
    jobs: bool = False,
    top: int | None = None,
    sort: str | None = None,
    percentiles: tuple[float, ...] = (),
    qacct: bool = False,
    index: Path | None = None,
    output: Annotated[own.Format, Parameter(alias="-o")] = "table",
) -> None:
    """Sum up or list what jobs used, from Grid Engine's accounting files.

    Reads all variants, classic and JSON lines, packed or not, many files at once.
    Lines that are no records are told on stderr and cost only themselves; the exit
    code is then 65. docs/acct.md says which flag of qacct is which flag here.

    Examples:
      ccpipe acct accounting* --by owner --top 10
      ccpipe acct -f accounting -j 4711
      ccpipe acct accounting --by month --by queue --percentiles 50 --percentiles 95
      ccpipe acct accounting --qacct --by owner -q 'all.q@node0*'

    Parameters
    ----------
    files
        Accounting files, .gz ones unpacked, - for standard input; without any, those of
        $SGE_ROOT/$SGE_CELL/common.
    file
        The same, as qacct has it.
    by
        Group by this; several times for several columns.
    jobs
        List records instead of summing them up.
    top
        Show so many rows, those with the most of --sort.
    sort
        Column to sort by, the largest first; with --top it is cpu unless given.
    percentiles
        Add percentiles of wait, wallclock and peak memory, such as 50 and 95.
    qacct
        Print what qacct 8.1.9 prints, to the last space.
    index
        Folder that `ccpipe acct index` has filled, in which to look jobs up by number.
    output
        How to show it; csv and json (one object a line) have all digits.
    """
    files = (*files, *file)
    selection = filters.selection()
    is_list = jobs or bool(filters.job and not by)
    if qacct and (output != "table" or top is not None or sort or percentiles):
        raise UsageError("--qacct is a layout of its own: no -o, --top, --sort, --percentiles")
    if bad := [percentage for percentage in percentiles if not 0 <= percentage <= 100]:  # noqa: PLR2004
        raise UsageError(f"--percentiles {bad[0]:g}: percentages lie between 0 and 100")
    reading = Files()
    if is_list:
        if index:
            from ccpipe.cli.acct_index import look_up

            found = look_up(index, files, selection, reading)
        else:
            found = read_records(files or default_files(), selection, reading)
        if qacct:
            _show_blocks(found, filters, _columns_of_qacct(filters, by))
        else:
            _show_records(found, filters, top, sort, output)
    elif index:
        raise UsageError("--index finds jobs by number: `ccpipe acct -j NUMBER --index FOLDER`")
    else:
        if qacct:
            by = _columns_of_qacct(filters, by)
        totals = _totals(files or default_files(), selection, by, percentiles, reading, short=qacct)
        if qacct:
            print("\n".join(layout.sums(totals, by, _given(filters))))
        else:
            _show_sums(totals, top, sort, output)
    reading.finish()


@acct.command
def index(
    *files: Annotated[Path, Parameter(allow_leading_hyphen=True)],
    to: Path,
) -> None:
    """Index accounting files, so that one job among millions is found at once.

    The folder gets one small Parquet file for each accounting file; run it again
    to bring it up to date, after rotation too: files are known by what they hold,
    not by their names. Lines of packed files are kept whole, because one cannot
    jump to a place in them.

    Examples:
      ccpipe acct index /var/lib/gridengine/default/common/accounting* --to ~/acct
      ccpipe acct -j 4711 --index ~/acct

    Parameters
    ----------
    files
        Accounting files; without any, those of $SGE_ROOT/$SGE_CELL/common.
    to
        Folder for the index.
    """
    from ccpipe.cli.acct_index import update

    reading = Files()
    for path in files or default_files():
        try:
            note(update(path, to, reading))
        except DataError as error:
            reading.complain(str(error))
    reading.finish()


def _totals(
    paths: Sequence[Path],
    selection: "Selection",
    by: Sequence[str],
    percentiles: Sequence[float],
    reading: Files,
    *,
    short: bool,
) -> "list[Total]":
    """Sum up; `short` leaves out what qacct does not show."""
    from ccpipe.formats.gridengine.columns import Columns, read_columns
    from ccpipe.translate.accounting_sums import Sums

    sums = Sums(by, only_qacct=short, percentages=percentiles)
    columns = tuple(dict.fromkeys((*selection.columns, *sums.columns)))

    def read(block: Block) -> Columns:
        part = read_columns(block.payload, columns, offset=block.offset, line=block.line)
        part.table = selection.apply(part.table)
        return part

    for block, part in reading.each_block(paths, read):
        reading.reject(block.name, part.rejected)
        sums.add(part.table)
    return sums.totals()


def _show_sums(
    totals: "list[Total]", top: int | None, sort: str | None, output: own.Format
) -> None:
    rows: Iterable[own.Row] = own.sums(totals)
    rows = _best(rows, top, sort)
    hidden = {"RUNS", "FAILED", "SLOT HOURS", "REQUESTED", "USED"}
    own.show(rows, output, hidden=hidden)


def _best(rows: Iterable[own.Row], top: int | None, sort: str | None) -> Iterable[own.Row]:
    if top is None and sort is None:
        return rows
    return own.best(rows, own.column(sort or "cpu"), top)


def _show_records(
    found: Iterable[Accounting],
    filters: Filters,
    top: int | None,
    sort: str | None,
    output: own.Format,
) -> None:
    rows = _best(map(own.record, found), top, sort)
    if not own.show(rows, output, hidden=own.HIDDEN):
        _not_found(filters)


def _show_blocks(found: Iterable[Accounting], filters: Filters, by: Sequence[Key]) -> None:
    """Print records as ``qacct -j`` does; without any job given it sums them up as well."""
    from ccpipe.formats.gridengine.table import from_records
    from ccpipe.translate.accounting_sums import Sums

    sums = Sums(by, only_qacct=True)
    is_empty = True
    records = iter(found)
    while some := list(itertools.islice(records, _SOME)):
        is_empty = False
        for record in some:
            print("\n".join(layout.block(record)))
        sums.add(from_records(some, sums.columns))
    if not filters.job:
        print("\n".join(layout.sums(sums.totals(), by, _given(filters))))
    elif is_empty:
        _not_found(filters)


_SOME = 4096
"""Records that are summed up at once."""


def _not_found(filters: Filters) -> NoReturn:
    asked = ", ".join(filters.job)
    if filters.task and asked:
        note(f"error: job-array tasks {asked}.{','.join(filters.task)} not found")
    else:
        note(f"error: job {asked} not found" if asked else "no record is what was asked for")
    sys.exit(NOT_FOUND)


def _columns_of_qacct(filters: Filters, by: Sequence[Key]) -> tuple[Key, ...]:
    """Return what qacct groups by: a queue that is asked for adds HOST and CLUSTER QUEUE."""
    if unknown := [name for name in by if name not in layout.TITLES]:
        raise UsageError(f"--by {unknown[0]}: qacct knows no such column; leave out --qacct")
    wanted: set[str] = {*by, *_asked(filters)} - (_given(filters).keys() - set(by))
    if filters.queue:
        wanted |= {"host", "queue"}
    keys: tuple[Key, ...] = get_args(Key)
    return tuple(name for name in keys if name in wanted)


def _given(filters: Filters) -> dict[str, str | int]:
    """Return the columns that have one value, because it was asked for."""
    asked = _asked(filters)
    return {
        name: values[0]
        for name, values in asked.items()
        if len(values) == 1 and not set(str(values[0])) & set("*?[")
    }


def _asked(filters: Filters) -> dict[str, tuple[str, ...] | tuple[int, ...]]:
    asked: dict[str, tuple[str, ...] | tuple[int, ...]] = {
        "host": filters.host,
        "group": tuple(map(group_name, filters.group)),
        "owner": filters.owner,
        "project": filters.project,
        "department": filters.department,
        "pe": filters.pe,
        "slots": filters.slots,
        "ar": filters.ar,
        "account": filters.account,
    }
    return {name: values for name, values in asked.items() if values}
