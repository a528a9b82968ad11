"""The plain parser of ``publish`` and the command's own read the same command lines alike."""

import subprocess
import sys
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.cli.app import app
from ccpipe.cli.console.where import Where
from ccpipe.cli.publish.plain import SERVICE, parse, run
from ccpipe.errors import UsageError


def as_the_command_reads_it(words: Sequence[str]) -> dict[str, object]:
    """Parse by the command's signature; return what was given."""
    _, bound, _ = app.parse_args(["publish", *words], exit_on_error=False, print_error=False)
    given = dict(bound.arguments)
    where = given.pop("where", Where())
    assert isinstance(where, Where)
    return {name: value for name, value in ({**vars(where), **given}).items() if value is not None}


def as_plain(words: Sequence[str]) -> dict[str, object]:
    """Return the same of the plain parser."""
    found = parse(words)
    assert found is not None
    return {name.replace("for", "for_"): value for name, value in found.items()}


NAMES = sorted(f"--{name}" for name in SERVICE)
OPTION = st.tuples(st.sampled_from(NAMES), st.sampled_from(["a", "10s", "x.y", "nats://h:1,b"]))


@given(st.lists(OPTION, unique_by=lambda option: option[0]), st.booleans())
def test_plain_lines_are_read_alike(options: list[tuple[str, str]], joined: bool) -> None:
    """In any order, with a space or an equals sign before the value."""
    words = [w for name, v in options for w in ([f"{name}={v}"] if joined else [name, v])]
    assert as_plain(words) == as_the_command_reads_it(words)


@pytest.mark.parametrize(
    "line", ["--help", "--once", "--dry-run", "x", "--config", "--config=", "--for 1s --for 2s"]
)
def test_other_lines_are_left_to_the_command(line: str) -> None:
    """Which knows all options, and what to say of mistakes."""
    assert parse(line.split()) is None
    assert run(line.split()) is False


def test_a_value_that_is_wrong_is_named() -> None:
    """As the command itself names it."""
    with pytest.raises(UsageError, match="--interval"):
        run(["--interval", "soon"])


def test_a_publisher_does_without_the_library_of_command_lines() -> None:
    """Nor does it hold what writes a page of metrics, reads archives or knows other formats."""
    unwanted = (
        "aiohttp", "ccpipe.formats.slurm", "ccpipe.formats.sonar", "cyclopts", "difflib", "email",
        "importlib.metadata", "prometheus_client", "shutil", "sqlite3", "tempfile", "zipfile",
    )  # fmt: skip
    code = (
        "import sys, ccpipe.cli.publish.plain\n"
        f"print([name for name in {unwanted} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_publisher_maps_no_library_of_cpp() -> None:
    """The kernels hold what they use of it; where ``g++`` has no ``libstdc++.a``, this fails."""
    code = "import ccpipe.cli.publish.plain; print(open('/proc/self/maps').read())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "lineprotocol/kernel/_kernel" in done.stdout
    assert "libstdc++" not in done.stdout
