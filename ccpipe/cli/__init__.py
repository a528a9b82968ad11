"""The command: one file for each subcommand, imported when it is called."""

import logging
import os
import sys

from cyclopts import App, CycloptsError

from ccpipe import __version__
from ccpipe.errors import CcpipeError, UsageError

COMMANDS = {
    "up": "Start everything on this machine: server, publisher, Parquet bridge, dashboard.",
    "publish": "Publish this node's metrics.",
    "bridge": "Run a recipe: carry messages from a source into a store.",
    "dashboard": "Show nodes, jobs, events and the pipe's health in a browser.",
    "tail": "Show what is on the bus.",
    "convert": "Convert files from one format to another.",
    "validate": "Check recipes, configuration and data files.",
    "acct": "Sum up or list what Grid Engine's jobs used.",
    "step": "Run a command and show what it used, as sacct does after a step.",
    "profile": "Merge, extract and show HDF5 profiles of Slurm's jobs.",
    "simulate": "Publish what a made cluster would, of any size.",
    "control": "Read or set controls of nodes.",
    "config": "Show the configuration in force, and configuration for other programs.",
    "nodelist": "Expand, compress and count node lists.",
    "plugins": "List sources, collectors, translators and sinks.",
    "version": "Show the versions that matter.",
}
"""Subcommands by name, with their summaries for the list of commands."""

app = App(
    name="ccpipe",
    help="""The monitoring pipe for HPC clusters.

    Examples: ccpipe up
              ccpipe tail --kind event
              ccpipe bridge bridges/victoriametrics.toml""",
    help_format="plaintext",
    version=__version__,
    version_flags=["--version"],
)

_FOLDERS = {"acct", "convert", "profile", "step", "tail"}
"""Commands that are packages."""


def _target(name: str) -> str:
    return f"ccpipe.cli.{name}{'.command' if name in _FOLDERS else ''}:{name}"


for _name, _summary in COMMANDS.items():
    app.command(_target(_name), name=_name, help=_summary)


def main() -> None:
    """Run the command line; exit with a code of ``sysexits.h``."""
    logging.basicConfig(
        level=os.environ.get("CCPIPE_LOGLEVEL", "INFO").upper(),
        format="%(asctime)s %(levelname)-7s %(message)s",
        stream=sys.stderr,
    )
    chosen = "".join(sys.argv[1:2])
    if chosen in COMMANDS:
        # `ccpipe --help` shows the summaries above without importing any command; the help of a
        # command is its docstring.
        del app[chosen]
        app.command(_target(chosen), name=chosen)
    try:
        app(exit_on_error=False, print_error=False)
    except CycloptsError as error:
        _fail(str(error), UsageError.exit_code)
    except CcpipeError as error:
        _fail(str(error), error.exit_code)
    except BrokenPipeError:
        # The reader of our output has exited (`ccpipe tail | head`), which is not an error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except KeyboardInterrupt:
        sys.exit(130)


def _fail(text: str, code: int) -> None:
    print(f"ccpipe: {text}", file=sys.stderr)
    sys.exit(code)
