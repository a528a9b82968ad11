"""``ccpipe acct``: resource usage of finished jobs, and the index of their records."""

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from ccpipe.accounting.files import Files, default_files
from ccpipe.cli.acct.gridengine import gridengine
from ccpipe.cli.acct.slurm import slurm
from ccpipe.cli.console.options import refuse_options
from ccpipe.errors import DataError
from ccpipe.terminal import note

acct = App(
    name="acct",
    help="""Summarize or list the resource usage of Grid Engine or Slurm jobs.

Examples: ccpipe acct gridengine accounting* --by user --count 10
          sacct -aP -S 2026-11-01 -o ALL | ccpipe acct slurm --by account
          ccpipe acct index sacct-2026-*.txt --dir ~/acct""",
)
acct.command(gridengine)
acct.command(slurm)


@acct.command
def index(
    *files: Annotated[Path, Parameter(allow_leading_hyphen=True)],
    dir_: Annotated[Path, Parameter(name="--dir")],
) -> None:
    """Index accounting files to find one job among millions quickly.

    The files are Grid Engine's, or the output of `sacct -P`. The directory gets one
    small Parquet file for each; run the command again to update it, also after
    rotation: files are identified by content, not by name. Lines of compressed
    files are copied into the index, because these files do not allow seeking.

    Examples:
      ccpipe acct index $SGE_ROOT/default/common/accounting* --dir ~/acct
      ccpipe acct gridengine -j 4711 --index ~/acct
      ccpipe acct index sacct-2026-*.txt --dir ~/acct

    Parameters
    ----------
    files
        Accounting files; default: those in $SGE_ROOT/$SGE_CELL/common.
    dir_
        Directory for the index.
    """
    from ccpipe.accounting.index import gridengine as gridengine_index
    from ccpipe.accounting.index import slurm as slurm_index

    refuse_options(files)
    reading = Files()
    for path in files or default_files():
        try:
            if slurm_index.has_rows(path):
                note(slurm_index.update(path, dir_))
            else:
                note(gridengine_index.update(path, dir_, reading))
        except DataError as error:
            reading.report(str(error))
    reading.finish()
