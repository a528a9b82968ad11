"""The command: one file per subcommand, imported when it is called.

This module is imported by every command line, also by ``ccpipe --help``: it must import nothing
heavy.
"""

import gc
import os
import signal
import sys

from ccpipe import __version__
from ccpipe.errors import CcpipeError, OutputError
from ccpipe.terminal import prepare_streams, printable

COMMAND_GROUPS = {
    "Run": {
        "up": "Start everything on this machine: server, publisher, Parquet bridge, dashboard.",
        "publish": "Publish this node's metrics.",
        "bridge": "Run recipes: move messages from sources into stores.",
        "dashboard": "Show nodes, jobs, events and the pipe's health in a browser.",
    },
    "Inspect": {
        "tail": "Show messages on the bus.",
        "top": "Show live cluster status: nodes, jobs, GPUs, message rates and errors.",
        "jobs": "List jobs, or show the report of one job.",
        "query": "Query Parquet files or a Delta table with SQL.",
        "check": "Check the pipe, as a plug-in for Nagios or Icinga.",
        "doctor": "Check this machine, the broker and the site's recipes, as support would.",
        "dead-letters": "List, show and replay dead letters.",
        "streams": "Show and configure the cluster's JetStream streams.",
    },
    "Data": {
        "send": "Publish lines from files or standard input.",
        "convert": "Convert files from one format to another.",
        "backfill": "Copy data from one store to another.",
        "validate": "Check recipes, configuration and data files.",
        "simulate": "Publish the data of a simulated cluster of any size.",
    },
    "Site": {
        "init": "Write the initial files of a site: ccpipe.toml, nats.conf and recipes.",
        "auth": "Generate keys and the broker configuration for a site.",
        "config": "Show the effective configuration, or generate it for other programs.",
        "control": "Read or set controls on nodes.",
        "plugins": "List sources, collectors, translators and sinks.",
    },
    "Slurm and Grid Engine": {
        "acct": "Summarize or list the resource usage of Grid Engine or Slurm jobs.",
        "step": "Run a command and report its resource usage, as sacct does for a step.",
        "hdf5": "Merge, extract and show HDF5 profiles of Slurm jobs.",
        "nodelist": "Expand, compress and count node lists.",
    },
    "Help": {
        "help": "Show the help of a command.",
        "version": "Show the versions of ccpipe, Python and libraries.",
        "completion": "Print the completion script for a shell.",
    },
}

COMMANDS = {name: text for group in COMMAND_GROUPS.values() for name, text in group.items()}

DIRECTORIES = {
    "acct", "config", "convert", "doctor", "hdf5", "jobs", "query", "step", "tail", "top",
}  # fmt: skip

HELP = """\
The monitoring pipe for HPC clusters.

Usage: ccpipe COMMAND [ARGUMENT ...]

{groups}

Options:
  --help, -h    Show this help, or the arguments and examples of a command.
  --version     Show the version.

Examples:
  ccpipe up
  ccpipe tail --kind event
  ccpipe bridge victoriametrics"""

OUT_OF_MEMORY = (
    "out of memory, or of threads: this process needs a higher limit "
    "(ulimit -v and -u; systemd: LimitAS, MemoryMax, TasksMax)"
)

GARBAGE_THRESHOLD = 50_000
"""Garbage collection threshold: imports create no garbage, and the default slows down startup."""


def main() -> None:
    """Run the command line; exit with a code of ``sysexits.h``."""
    gc.set_threshold(GARBAGE_THRESHOLD)
    interrupt = signal.getsignal(signal.SIGINT)
    if interrupt is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback out of an import
    prepare_streams()
    code = 0
    try:
        try:
            _run(sys.argv[1:], interrupt)
        finally:
            sys.stdout.flush()
    except CcpipeError as error:
        code = _report(error, is_check=sys.argv[1:2] == ["check"])
        if isinstance(error, OutputError):
            _discard_output()
    except BrokenPipeError:
        _discard_output()  # its reader has exited (`ccpipe tail | head`), which is not an error
    except KeyboardInterrupt:
        code = 130
    except (MemoryError, RuntimeError) as error:
        if not (isinstance(error, MemoryError) or "start new thread" in str(error)):
            raise
        print(f"ccpipe: {OUT_OF_MEMORY}", file=sys.stderr)
        code = os.EX_OSERR
    if "duckdb" not in sys.modules:  # it would report each of its objects as leaked
        gc.freeze()  # searching all objects for cycles at exit would take 50 ms
    sys.exit(code)


def _run(words: list[str], interrupt: object) -> None:
    if words in ([], ["-h"], ["--help"]):
        print_commands()
    elif words == ["--version"]:
        print(__version__)
    else:
        from ccpipe.cli.app import run

        # mypy does not know what getsignal() returns
        run(words, lambda: signal.signal(signal.SIGINT, interrupt))  # type: ignore[arg-type]


def _report(error: CcpipeError, *, is_check: bool) -> int:
    """Print an error and return the exit code; a monitor reads one line of standard output."""
    if is_check:
        from ccpipe.cli.check import Finding, Status, line

        print(line("check", [Finding("check", Status.UNKNOWN, str(error))]))
        return Status.UNKNOWN
    print("\n".join(map(printable, f"ccpipe: {error}".split("\n"))), file=sys.stderr)
    return error.exit_code


def print_commands() -> None:
    width = max(map(len, COMMANDS)) + 2
    groups = [
        "\n".join([f"{title}:", *(f"  {name:<{width}}{text}" for name, text in commands.items())])
        for title, commands in COMMAND_GROUPS.items()
    ]
    print(HELP.format(groups="\n\n".join(groups)))


def import_path(name: str) -> str:
    """Return the module and the object of a command, as ``module:object``."""
    attribute = name.replace("-", "_")
    return f"ccpipe.cli.{attribute}{'.command' if name in DIRECTORIES else ''}:{attribute}"


def _discard_output() -> None:
    """Discard buffered output, which the interpreter would flush at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
