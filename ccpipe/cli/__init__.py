"""The command: one file per subcommand, imported when it is called.

This module is imported by every command line, also by ``ccpipe --help``: it must import nothing
heavy.
"""

import gc
import importlib
import os
import signal
import sys

from ccpipe import __version__
from ccpipe.cli.commands import PLAIN, print_commands
from ccpipe.errors import CcpipeError, ConfigError, OutputError
from ccpipe.terminal import prepare_streams, printable

HELP_FLAGS = ("--help", "-h")

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
"""Values of ``CCPIPE_LOGLEVEL``."""

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
        print("\n".join(map(printable, f"ccpipe: {error}".split("\n"))), file=sys.stderr)
        code = error.exit_code
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
    """Discard buffered output, which the interpreter would flush at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
