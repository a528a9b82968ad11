"""The command itself: its streams, its exit codes, Ctrl-C at any time."""

import asyncio
import importlib
import pkgutil
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ccpipe import cli
from ccpipe.bus.nats.server import NatsServer
from ccpipe.cli import COMMANDS, import_path, main
from tests.cli.command import Ended, ccpipe, command, ended, environment, start
from tests.paths import ROOT

DRY_RUN = ("bridge", ROOT / "bridges" / "null.toml", "--dry-run")
SAMPLE = ("publish", "--once", "--dry-run", "-o")


def shell(script: str, *words: object, **environ: str) -> tuple[int, str]:
    """Run a command by a line of shell in which it is called ``"$@"``; return exit code, stderr."""
    done = subprocess.run(
        ["bash", "-c", script, "-", *command(*words)],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        env=environment(**environ), timeout=60, check=False,
    )  # fmt: skip
    return done.returncode, done.stderr.decode()


@pytest.mark.parametrize("redirect", [">&-", ">/dev/full"])
@pytest.mark.parametrize(
    "words",
    [
        ("--help",), ("version",), ("tail", "--help"), DRY_RUN,
        *((*SAMPLE, output) for output in ("line", "json", "table", "sonar")),
    ],
)  # fmt: skip
def test_command_reports_closed_or_full_stdout(words: tuple[object, ...], redirect: str) -> None:
    """In one line, with EX_IOERR, so that an empty file is not taken for the output."""
    code, errors = shell(f'"$@" {redirect}', *words)
    assert code == 74
    assert errors.splitlines()[-1].startswith("ccpipe: standard output: ")
    assert "Traceback" not in errors
    assert "dead letter from" not in errors


@pytest.mark.parametrize("words", [("--help",), ("plugins",), DRY_RUN])
def test_command_ends_quietly_when_reader_closes_pipe(words: tuple[object, ...]) -> None:
    """As in ``ccpipe … | head -1``; unread output does not become a dead letter."""
    code, errors = shell('"$@" | head -n 1 >/dev/null; exit ${PIPESTATUS[0]}', *words)
    assert code == 0
    assert "dead letter from" not in errors
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("can't start new thread"), RuntimeError("another")]
)
def test_command_reports_lack_of_memory_or_threads(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With EX_OSERR and what to raise, without a traceback; other errors are unaffected."""

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("ccpipe.cli._run", fail)
    with pytest.raises((SystemExit, RuntimeError)) as caught:
        main()
    if isinstance(caught.value, SystemExit):
        assert caught.value.code == 71
        assert capsys.readouterr().err.startswith("ccpipe: out of memory, or of threads: ")
    assert (caught.value is error) == ("another" in str(error))


def test_command_reports_memory_limit_in_one_line(tmp_path: Path) -> None:
    """A real limit: 20 MB beyond what the interpreter has, and a line of 100 MB."""
    (tmp_path / "long.lp").write_bytes(b"m value=1,b=" + b"1" * 10**8)
    code = (
        "import resource, sys; from ccpipe.cli import main, app, validate; "
        "size = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize(); "
        "resource.setrlimit(resource.RLIMIT_AS, (size + 2 * 10**7, -1)); "
        f"sys.argv = ['ccpipe', 'validate', '{tmp_path}/long.lp']; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment(),
        timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 71, done.stderr
    assert done.stderr.splitlines()[-1].startswith("ccpipe: out of memory")
    assert "Traceback" not in done.stderr


def test_command_works_with_closed_stderr() -> None:
    """Messages are dropped; files opened later do not get its descriptor."""
    code, _ = shell('"$@" 2>&-', "nodelist", "count", "n[1-3]")
    assert code == 0


@pytest.mark.parametrize("locale", ["C", "POSIX"])
def test_command_escapes_characters_missing_in_locale(locale: str) -> None:
    shown = ccpipe(
        "tail", "--help", LC_ALL=locale, PYTHONIOENCODING="latin-1", PYTHONUTF8="0"
    )  # fmt: skip
    assert (shown.code, shown.err) == (0, "")
    code, errors = shell('"$@"', "bridge", "/nonexistent/ж", PYTHONIOENCODING="latin-1")
    assert code == 66
    assert "Traceback" not in errors


def test_unknown_log_level_is_configuration_error() -> None:
    """The message lists the levels."""
    shown = ccpipe("version", CCPIPE_LOGLEVEL="bogus")
    assert shown.code == 78
    assert "CCPIPE_LOGLEVEL: not a level: 'bogus' (expected debug, info" in shown.err


@pytest.mark.parametrize(
    "words",
    [
        ("bridge", "/nonexistent.toml"),
        ("validate", "/nonexistent.toml"),
        ("validate", "/nonexistent.lp"),
        ("tail", "--config", "/nonexistent.toml"),
        ("config", "show", "--config", "/nonexistent.toml"),
        ("convert", "--to", "json", "/nonexistent.lp"),
        ("acct", "gridengine", "/nonexistent"),
        ("send", "/nonexistent"),
        ("dead-letters", "list", "/nonexistent"),
        ("hdf5", "show", "--input", "/nonexistent.h5"),
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_missing_input_exits_with_66(words: tuple[str, ...]) -> None:
    """``EX_NOINPUT``, for any kind of file, with its name in the message."""
    shown = ccpipe(*words)
    assert shown.code == 66
    assert "/nonexistent" in shown.out + shown.err
    assert "no such file" in (shown.out + shown.err).lower()


def test_command_reports_directory_that_cannot_be_created(tmp_path: Path) -> None:
    """With EX_CANTCREAT, and without a traceback."""
    (tmp_path / "file").touch()
    for words in (("up", "--dir"), ("init",), ("auth", "init", "--node", "a")):
        shown = ccpipe(*words, tmp_path / "file" / "x")
        assert shown.code == 73
        assert "not a directory" in shown.err
        assert "Traceback" not in shown.err


async def ran(*commands: str, server: str, **environ: str) -> list[Ended]:
    """Run commands in parallel."""
    processes = [await start(*line.split(), "--server", server, **environ) for line in commands]
    return await asyncio.gather(*map(ended, processes))


async def test_command_reports_unreachable_broker(unused_port: int) -> None:
    """With EX_UNAVAILABLE, in bounded time: an empty answer would look like an idle cluster."""
    commands = ("streams show", "streams apply", "control get", "dead-letters list", "send -",
                "top --once --for 500ms", "tail --for 500ms", "tail")  # fmt: skip
    for shown in await ran(*commands, server=f"nats://127.0.0.1:{unused_port}"):
        assert (shown.code, shown.out) == (69, "")
        assert str(unused_port) in shown.err


async def test_command_ends_when_broker_denies_access(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    """With EX_NOPERM, since waiting would not help; no password is shown."""
    (tmp_path / "site.toml").touch()
    commands = ("tail", "dashboard --listen 127.0.0.1:0", f"validate {tmp_path}/site.toml")
    for shown in await ran(*commands, server=nats_server.url.replace("ccpipe:", "ccpipe:hunter2")):
        assert shown.code == 77, shown.err
        assert "hunter2" not in shown.out + shown.err
        assert "Traceback" not in shown.err


def test_ctrl_c_at_any_time_ends_command_without_traceback(tmp_path: Path) -> None:
    """While modules are imported, while it connects, while it runs."""
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('[source]\nuse = "nats"\n[sink]\nuse = "null"\n')
    for delay in (0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.8):
        with subprocess.Popen(
            command("bridge", recipe), stderr=subprocess.PIPE, env=environment()
        ) as process:
            maps = Path(f"/proc/{process.pid}/maps")
            while "msgspec" not in maps.read_text():  # Python's own start is not ours
                time.sleep(0.002)
            time.sleep(delay)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=60)
        assert process.returncode in (0, 130, -signal.SIGINT)
        assert b"Traceback" not in errors, errors.decode()


WATCHED = """
import signal, sys
import ccpipe.cli

class Watch:
    def find_spec(self, name, path=None, target=None):
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            print("imported:", name)

sys.meta_path.insert(0, Watch())
ccpipe.cli.main()
"""


@pytest.mark.parametrize(
    "words", ["bridge --for 0s {}/recipe.toml", "tail --for 0s", "publish --once --dry-run"]
)
def test_command_imports_nothing_while_ctrl_c_raises(tmp_path: Path, words: str) -> None:
    """KeyboardInterrupt inside of an import can get lost in a callback of the import system."""
    (tmp_path / "recipe.toml").write_text('[source]\nuse = "nats"\n[sink]\nuse = "null"\n')
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, *words.format(tmp_path).split()],
        capture_output=True, env=environment(), check=False,
    )  # fmt: skip
    assert b"Traceback" not in done.stderr
    assert b"imported:" not in done.stdout


@pytest.mark.parametrize(
    ("word", "unwanted"),
    [
        ("--help", "cyclopts asyncio msgspec nats logging dataclasses shutil"),
        ("version", "asyncio nats ssl rich.console numpy pyarrow ccpipe.pipeline"),
    ],
)
def test_commands_import_only_libraries_they_need(word: str, unwanted: str) -> None:
    """The list of commands must be fast, and ``version`` must work with broken libraries."""
    program = (
        f"import sys; sys.argv = ['ccpipe', {word!r}]\n"
        "from ccpipe.cli import main\n"
        "try: main()\n"
        f"finally: print([m for m in {unwanted.split()} if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stderr == b"[]\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_is_module_or_directory_of_its_name(name: str) -> None:
    """So that a command's file is easy to find."""
    module, _, attribute = import_path(name).partition(":")
    assert getattr(importlib.import_module(module), attribute)
    package = importlib.import_module(module.removesuffix(".command"))
    assert hasattr(package, "__path__") == module.endswith(".command")


def test_every_module_that_is_a_command_is_listed() -> None:
    """The command line would not know a new one that is not."""
    found = {each.name for each in pkgutil.iter_modules(cli.__path__)}
    assert found - {"app", "console", "recipe"} == {name.replace("-", "_") for name in COMMANDS}


def test_programs_run_commands_that_exist() -> None:
    """Benchmarks and scripts are not run by the tests."""
    found = {
        name
        for directory in ("benchmarks", "scripts", "tests")
        for path in (ROOT / directory).rglob("*.py")
        for name in re.findall(r'"-m", "ccpipe", "([a-z-]+)"', path.read_text())
    }
    assert "bridge" in found
    assert found <= set(COMMANDS)
