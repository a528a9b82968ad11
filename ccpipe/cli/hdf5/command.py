"""``ccpipe hdf5``: HDF5 profiles of Slurm's jobs."""

import getpass
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from cyclopts import App, Parameter

from ccpipe.cli.console.options import SiteOptions
from ccpipe.cli.console.output import print_json, print_table, terminal_width
from ccpipe.cli.hdf5.options import (
    Tables,
    configured_directory,
    parse_selections,
    write_output,
)
from ccpipe.errors import DataError, MissingInputError, UsageError
from ccpipe.terminal import listed, note, plural, working

if TYPE_CHECKING:
    from ccpipe.formats.slurm_profile.merge import MergeReport

# Before numpy: its library for linear algebra, which nothing here needs, starts a thread for each
# processor, and these spin. Without them a command begins with a tenth to a fifth less CPU time.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

hdf5 = App(
    name="hdf5",
    help="""Merge, extract and show HDF5 profiles of Slurm jobs.

Covers the functions of sh5util, with the same option names, and more.

Examples: ccpipe hdf5 merge --job 17 --profiledir /shared/profiles
          ccpipe hdf5 extract --job 17 --series Tasks --level Node:Totals
          ccpipe hdf5 show --input job_17.h5 --series Energy""",
    help_format="plaintext",
)


@hdf5.command
def merge(
    *,
    job: Annotated[tuple[str, ...], Parameter(alias="-j")] = (),
    input: Annotated[tuple[Path, ...], Parameter(alias="-i")] = (),  # noqa: A002
    profiledir: Annotated[Path | None, Parameter(alias="-p")] = None,
    user: Annotated[str | None, Parameter(alias="-u")] = None,
    out: Path | None = None,
    savefiles: Annotated[bool, Parameter(alias="-S")] = False,
    delete: bool = False,
) -> None:
    """Merge the node-step files of a job into one file.

    Existing content of the output is kept. Input files are kept, unless --delete
    is given and the output was verified. If a file cannot be read, the others are
    merged and the exit code is 65.

    Examples:
      ccpipe hdf5 merge --job 17 --profiledir /shared/profiles
      ccpipe hdf5 merge --job 17.0 --user alice --out first.h5
      ccpipe hdf5 merge -i 17_0_n1.h5 -i 17_0_n2.h5 --out job_17.h5

    Parameters
    ----------
    job
        Jobs or steps, such as 17 or 17.0.
    input
        Node-step files, or job files, instead of those in the directory.
    profiledir
        Directory with the users' directories; default: ProfileHDF5Dir of acct_gather.conf.
    user
        Owner of the files; default: you.
    out
        Job file; default: ./job_<id>.h5.
    savefiles
        Keep the input, which is the default; for compatibility with sh5util.
    delete
        Delete each input file whose rows are all in the output.
    """
    from ccpipe.formats.slurm_profile.merge import find_node_steps
    from ccpipe.formats.slurm_profile.merge import merge as merge_files

    chosen = parse_selections(job)
    if savefiles and delete:
        raise UsageError("--savefiles keeps what --delete deletes")
    names = {one.job_text for one in chosen}
    if not names and not (input and out):
        raise UsageError("--job, or --input and --out, is missing; see ccpipe hdf5 merge --help")
    if out and len(names) > 1:
        raise UsageError("--out is one file: merge one job at a time")
    failed = False
    for name in sorted(names) or [""]:
        of_job = [one for one in chosen if one.job_text == name]
        steps = [one.step for one in of_job]
        paths = list(input)
        if not paths:
            directory = profiledir or configured_directory()
            if directory is None:
                raise UsageError("--profiledir is missing; see ccpipe hdf5 merge --help")
            try:
                paths = find_node_steps(directory / (user or getpass.getuser()), of_job[0].raw_id())
            except OSError as error:
                raise MissingInputError(f"{error.filename}: {error.strerror}") from error
        if not paths:
            note(f"ccpipe: job {name}: no node-step files in {directory}", "yellow")
            failed = True
            continue
        wanted = [] if None in steps else [step for step in steps if step]
        target = out or Path(f"job_{name}.h5")
        with working(f"merging {plural(len(paths), 'file')} into {target}"):
            report = merge_files(paths, target, steps=wanted, delete_inputs=delete)
        failed |= _report(report)
    if failed:
        sys.exit(65)


def _report(report: "MergeReport") -> bool:
    for error in report.failures:
        note(f"ccpipe: {error}", "red")
    for path, reason in report.kept.items():
        note(f"ccpipe: {path} is kept: {reason}", "yellow")
    added, total = len(report.added), len(report.node_steps)
    note(f"{report.output}: {plural(total, 'node-step')}, {added} new")
    return bool(report.failures)


@hdf5.command
def extract(
    *,
    tables: Tables = Tables(),
    level: Annotated[str, Parameter(alias="-l")] = "Node:TimeSeries",
    out: Path | None = None,
    output: Annotated[Literal["csv", "json", "line", "parquet"], Parameter(alias="-o")] = "csv",
    sh5util: bool = False,
    cluster: str | None = None,
) -> None:
    """Write the samples of a series, or their totals.

    CSV output is byte-identical to sh5util's where that is correct, but
    placeholder numbers for missing values are left empty, and steps without the
    series are skipped.

    Examples:
      ccpipe hdf5 extract --job 17 --series Tasks
      ccpipe hdf5 extract -i job_17.h5 -s Energy -l Node:Totals --out power.csv
      ccpipe hdf5 extract -i job_17.h5 -o line --cluster fritz

    Parameters
    ----------
    level
        Node:TimeSeries, Node:Totals or Step:Totals.
    out
        File; else stdout.
    output
        csv and parquet are for one series; json (one object per line) and line also for several.
    sh5util
        Treat placeholders for missing values as numbers, as sh5util does.
    cluster
        Value of the tag cluster in line protocol; default: from the configuration. The tag jobid
        is taken from the file name, else from --job.
    """
    from ccpipe.cli.hdf5 import formats
    from ccpipe.formats.slurm_profile.extract import extract_csv, parse_level

    try:
        kind = parse_level(level)
    except DataError as error:
        raise UsageError(f"--level: {error}") from None
    with tables.open() as found:
        names = list(dict.fromkeys(table.series for table in found))
        if len(names) > 1 and output in ("csv", "parquet"):
            raise UsageError(f"--series: {output} has one series at a time: {listed(names)}")
        if output == "csv":
            write_output(extract_csv(found, kind, sentinels=sh5util), out)
        elif output == "json":
            write_output(formats.json_lines(found, kind), out)
        elif output == "line":
            if kind.value != "Node:TimeSeries":
                raise UsageError("--output line is for samples: --level Node:TimeSeries")
            name = cluster or SiteOptions().site().cluster
            write_output(formats.line_protocol(found, name, tables.job_id()), out)
        elif out is None:
            raise UsageError("--output parquet needs a file: --out FILE")
        else:
            with working(f"writing {out}"):
                formats.write_parquet(found, kind, out)


@hdf5.command
def items(
    *,
    tables: Tables = Tables(),
    data: Annotated[str, Parameter(alias="-d")],
    out: Path | None = None,
    output: Annotated[Literal["csv", "json"], Parameter(alias="-o")] = "csv",
    interval: int = 1,
    sh5util: bool = False,
) -> None:
    """Write one field of all tables side by side: minimum, maximum, sum and average.

    Rows are aligned by time; sh5util aligns them by row number. The position of
    the largest sum of each step is printed on stderr.

    Examples:
      ccpipe hdf5 items --job 17 --series Tasks --data RSS
      ccpipe hdf5 items -i job_17.h5 -s Energy -d Power --interval 10
      ccpipe hdf5 items -i job_17.h5 -s Energy -d Power --sh5util

    Parameters
    ----------
    data
        Name of the field; case-insensitive.
    out
        File; else stdout.
    output
        csv, or json: one object per line.
    interval
        Seconds per row.
    sh5util
        Rows and columns as sh5util writes them.
    """
    from ccpipe.formats.slurm_profile.items import (
        align_item,
        find_peaks,
        item_csv,
        list_names,
        sh5util_item_csv,
        zip_item,
    )

    if interval < 1:
        raise UsageError(f"--interval {interval}: at least one second")
    with tables.open() as found:
        if len({table.series for table in found}) > 1:
            raise UsageError("--series: one series at a time")
        with working("aligning rows"):
            rows = list(
                zip_item(found, data) if sh5util else align_item(found, data, interval=interval)
            )
        if output == "json":
            pieces: Iterator[bytes] = (msgspec.json.encode(row) + b"\n" for row in rows)
        elif sh5util:
            pieces = sh5util_item_csv(iter(rows), found)
        else:
            pieces = item_csv(iter(rows), list_names(found))
        write_output(pieces, out)
        for peak in find_peaks(rows):
            note(peak.text(data))


@hdf5.command(name="list")
def list_(
    *,
    tables: Tables = Tables(),
    any_: Annotated[bool, Parameter(name="--any")] = False,
    output: Annotated[Literal["table", "json"], Parameter(alias="-o")] = "table",
) -> None:
    """List the fields common to all tables of each series, and corrections they may need.

    Examples:
      ccpipe hdf5 list --job 17
      ccpipe hdf5 list -i job_17.h5 -s Tasks --any
      ccpipe hdf5 list -i job_17.h5 -o json

    Parameters
    ----------
    any_
        List the fields of any table, instead of those common to all.
    output
        table or json.
    """
    from ccpipe.formats.slurm_profile.corrections import recognize
    from ccpipe.formats.slurm_profile.extract import all_fields, by_series, common_fields

    with tables.open() as found, working("reading tables"):
        rows: list[dict[str, Any]] = [
            {
                "series": name,
                "fields": all_fields(group) if any_ else common_fields(group),
                "tables": len(group),
                "rows": sum(map(len, group)),
                "suspect": sorted({rule for table in group for rule in recognize(table)}),
            }
            for name, group in by_series(found).items()
        ]
    if output == "json":
        print_json(rows)
        return
    heads = ("SERIES", "TABLES", "ROWS", "FIELDS")
    print_table(
        [
            [str(row["series"]), str(row["tables"]), str(row["rows"]), " ".join(row["fields"])]
            for row in rows
        ],
        heads,
    )
    for row in rows:
        if row["suspect"]:
            note(f"{row['series']}: probably needs --fix {' --fix '.join(row['suspect'])}")


@hdf5.command
def show(
    *,
    tables: Tables = Tables(),
    data: Annotated[tuple[str, ...], Parameter(alias="-d")] = (),
    width: int | None = None,
    out: Path | None = None,
) -> None:
    """Plot series in the terminal, one line per field and table, or to a file.

    Examples:
      ccpipe hdf5 show --job 17
      ccpipe hdf5 show -i job_17.h5 -s Tasks -d RSS -d CPUUtilization
      ccpipe hdf5 show -i job_17.h5 -s Energy --out power.svg

    Parameters
    ----------
    data
        Fields; default: all except constant ones.
    width
        Width of the plot in characters; default: the rest of the terminal's width.
    out
        Plot to this file instead: .png, .svg or .pdf, one panel per field.
    """
    from ccpipe.cli.hdf5.curves import curves, draw

    with tables.open() as found:
        if out is not None:
            with working(f"drawing {out}"):
                count = draw(found, data, out)
            note(f"{out}: {plural(count, 'curve')}")
            return
        for line in curves(found, data, width, terminal_width()):
            print(line)


@hdf5.command
async def publish(
    *,
    tables: Tables = Tables(),
    where: SiteOptions = SiteOptions(),
) -> None:
    """Publish the samples of profiles on the bus, as metrics.

    Publishes what `ccpipe step --publish` sends while a step runs, from existing
    profile files. Samples published twice within two minutes are deduplicated.

    Examples:
      ccpipe hdf5 publish --job 17
      ccpipe hdf5 publish -i 17_0_n1.h5 --server nats://10.0.0.1:4222
      ccpipe hdf5 publish -i job_17.h5 -s Energy --cluster fritz
    """
    from ccpipe.cli.hdf5.formats import publish_samples

    site = where.site()
    with tables.open() as found, working("publishing samples"):
        count = await publish_samples(found, site, tables.job_id())
    note(f"{plural(count, 'sample')} published")
