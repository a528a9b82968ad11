"""The command: one file for each subcommand, imported when it is called."""

import logging
import os
import sys

from cyclopts import App, CycloptsError

from ccpipe import __version__
from ccpipe.errors import CcpipeError, UsageError

app = App(
    name="ccpipe",
    help="The monitoring pipe for HPC clusters.",
    help_format="plaintext",
    version=__version__,
    version_flags=["--version"],
    help_epilogue="""Examples:
  ccpipe up                          # this machine's metrics, live and into Parquet
  ccpipe tail --kind metric --limit 5
  ccpipe bridge bridges/victoriametrics.toml""",
)

_COMMANDS = {
    "up": "Start everything on this machine: server, publisher and a Parquet bridge.",
    "publish": "Publish this node's metrics.",
    "bridge": "Run a recipe: carry messages from a source into a store.",
    "tail": "Show what is on the bus.",
    "convert": "Convert files from one format to another.",
    "validate": "Check recipes, configuration and data files.",
    "config": "Show the configuration in force and where it comes from.",
    "plugins": "List sources, collectors, translators and sinks.",
    "version": "Show the versions that matter.",
}

for _name, _help in _COMMANDS.items():
    app.command(f"ccpipe.cli.{_name}:{_name}", name=_name, help=_help)


def main() -> None:
    """Run the command line and end with an exit code of ``sysexits.h``."""
    logging.basicConfig(
        level=os.environ.get("CCPIPE_LOGLEVEL", "INFO").upper(),
        format="%(asctime)s %(levelname)-7s %(message)s",
        stream=sys.stderr,
    )
    try:
        app(exit_on_error=False, print_error=False)
    except CycloptsError as error:
        _fail(str(error), UsageError.exit_code)
    except CcpipeError as error:
        _fail(str(error), error.exit_code)
    except BrokenPipeError:
        # The reader of our output went away (`ccpipe tail | head`): that is no error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except KeyboardInterrupt:
        sys.exit(130)


def _fail(text: str, code: int) -> None:
    print(f"ccpipe: {text}", file=sys.stderr)
    sys.exit(code)
