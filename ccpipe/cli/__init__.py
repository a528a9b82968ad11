"""The command: one file for each subcommand, imported when it is called.

What stands here is imported by every command line, also by ``ccpipe --help``: nothing heavy.
"""

import gc
import importlib
import os
import signal
import sys

from ccpipe import __version__
from ccpipe.errors import CcpipeError, ConfigError, OutputError
from ccpipe.terminal import prepare_streams, printable

COMMANDS = {
    "up": "Start everything on this machine: server, publisher, Parquet bridge, dashboard.",
    "publish": "Publish this node's metrics.",
    "bridge": "Run a recipe: move messages from a source into a store.",
    "dashboard": "Show nodes, jobs, events and the pipe's health in a browser.",
    "send": "Publish lines from files or standard input.",
    "tail": "Show messages on the bus.",
    "backfill": "Copy data from one store to another.",
    "query": "Query the Parquet files with SQL.",
    "top": "Show live cluster status: nodes, jobs, GPUs, message rates and errors.",
    "convert": "Convert files from one format to another.",
    "dead": "List, show and replay dead letters.",
    "check": "Check the pipe, as a plug-in for Nagios or Icinga.",
    "validate": "Check recipes, configuration and data files.",
    "acct": "Summarize or list the resource usage of Grid Engine or Slurm jobs.",
    "step": "Run a command and report its resource usage, as sacct does for a step.",
    "profile": "Merge, extract and show HDF5 profiles of Slurm jobs.",
    "simulate": "Publish the data of a simulated cluster of any size.",
    "control": "Read or set controls on nodes.",
    "auth": "Generate keys and the broker configuration for a site.",
    "streams": "Show and configure the cluster's JetStream streams.",
    "config": "Show the effective configuration, or generate it for other programs.",
    "nodelist": "Expand, compress and count node lists.",
    "plugins": "List sources, collectors, translators and sinks.",
    "init": "Write the initial files of a site: ccpipe.toml, nats.conf and recipes.",
    "completion": "Print the completion script for a shell.",
    "version": "Show the versions of ccpipe, Python and libraries.",
}
"""Subcommands by name, with their summaries for the list of commands."""

FOLDERS = {
    "acct",
    "check",
    "config",
    "convert",
    "dead",
    "profile",
    "publish",
    "step",
    "tail",
    "top",
}
"""Commands that are packages."""

PLAIN = {"publish": "ccpipe.cli.publish.plain", "tail": "ccpipe.cli.tail.plain"}
"""What reads plain lines of some commands, which is faster and takes less memory."""

HELP_FLAGS = ("--help", "-h")

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
"""What ``CCPIPE_LOGLEVEL`` may name."""

GARBAGE_THRESHOLD = 20_000
"""New objects after which Python looks for cycles among them: imports make no garbage, and its own
700 would cost an eighth of the time until a command begins."""

HELP = """\
The monitoring pipe for HPC clusters.

Usage: ccpipe COMMAND [ARGUMENT ...]

Commands:
{commands}

Options:
  -h, --help    Show this help, or the arguments and examples of a command.
  --version     Show the version.

Examples:
  ccpipe up
  ccpipe tail --kind event
  ccpipe bridge victoriametrics"""


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
        print("\n".join(map(printable, f"ccpipe: {error}".split("\n"))), file=sys.stderr)
        code = error.exit_code
        if isinstance(error, OutputError):
            _discard_output()
    except BrokenPipeError:
        _discard_output()  # its reader has exited (`ccpipe tail | head`), which is not an error
    except KeyboardInterrupt:
        code = 130
    gc.freeze()  # the process ends: to look for cycles among all objects would take 50 ms
    sys.exit(code)


def _run(words: list[str], interrupt: object) -> None:
    if words in ([], ["-h"], ["--help"]):
        print_commands()
    elif words == ["--version"]:
        print(__version__)
    elif words[-1] not in HELP_FLAGS or not _print_help(words[:-1]):
        _start_logging()
        if words[0] in PLAIN:
            plain = importlib.import_module(PLAIN[words[0]])
            signal.signal(signal.SIGINT, interrupt)  # type: ignore[arg-type] # of getsignal()
            if plain.run(words[1:]):
                return
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        from ccpipe.cli.app import run

        signal.signal(signal.SIGINT, interrupt)  # type: ignore[arg-type] # of getsignal()
        run(words)


def print_commands() -> None:
    """Print what ``ccpipe --help`` shows."""
    width = max(map(len, COMMANDS)) + 2
    commands = [f"  {name:<{width}}{summary}" for name, summary in COMMANDS.items()]
    print(HELP.format(commands="\n".join(commands)))


def _print_help(names: list[str]) -> bool:
    """Print the help of a command or subcommand; return whether there is one."""
    from ccpipe.cli.console.help import print_help

    return print_help(" ".join(names))


def _start_logging() -> None:
    import logging

    from ccpipe.cli.console.log_format import PrintableFormatter

    level = os.environ.get("CCPIPE_LOGLEVEL", "INFO")
    if level.upper() not in LEVELS:
        known = ", ".join(LEVELS).lower()
        raise ConfigError(f"CCPIPE_LOGLEVEL: not a level: {level!r} (expected {known})")
    handler = logging.StreamHandler()
    handler.setFormatter(PrintableFormatter("%(asctime)s %(levelname)-7s %(message)s"))
    logging.basicConfig(level=level.upper(), handlers=[handler])


def _discard_output() -> None:
    """Let what is still in a buffer go nowhere when the interpreter flushes it at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
