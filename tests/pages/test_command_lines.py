"""Command lines in the pages parse, and run unchanged with a broker that has messages.

Those that cannot run are listed below, with the reason.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import nats
import pytest

from ccpipe.bus.nats.server import NatsServer
from ccpipe.cli.app import app
from ccpipe.cli.recipe.shipped import recipes
from tests.cli.command import environment
from tests.conftest import free_port
from tests.paths import ROOT

PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md")), *ROOT.glob("bridges/*.md")]
FENCE = re.compile(r"^ *```(?P<language>\S*)\n(?P<text>.*?)^ *```$", re.MULTILINE | re.DOTALL)
SHELL = {"", "bash", "console", "sh"}
SCREEN = "ccpipe is up:"
"""How the output of ``ccpipe up`` begins, which pages show."""


def command_lines(page: str) -> Iterator[list[str]]:
    """Yield the arguments of each ``ccpipe`` in the blocks of shell commands of a page."""
    for block in FENCE.finditer(page):
        if block["language"] in SHELL:
            for line in block["text"].replace("\\\n", " ").splitlines():
                if re.search(r"(^|[|;&=/\s])ccpipe\s", line) and not line.startswith(SCREEN):
                    yield from calls(line)


def calls(line: str) -> Iterator[list[str]]:
    words = shlex.shlex(line, posix=True, punctuation_chars=True)
    words.whitespace_split = True
    words.commenters = "#"
    segment: list[str] = []
    for word in [*words, ";"]:
        if not set(word) <= set("|;&<>()"):
            segment.append(word)
            continue
        while segment and (segment[0] in ("$", "sudo") or re.match(r"[A-Z_]+=", segment[0])):
            del segment[0]
        if segment and Path(segment[0]).name == "ccpipe":
            yield segment[1:]
        segment = []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_command_lines_of_page_parse(path: Path) -> None:
    """Commands, options, their values and the named recipes exist."""
    for call in command_lines(path.read_text(encoding="utf-8")):
        app.parse_args(call, exit_on_error=False, print_error=False)
        paths = [word for word in call if re.fullmatch(r"bridges/[\w-]+\.toml", word)]
        assert all((ROOT / path).exists() for path in paths), call
        if call[:1] == ["bridge"] and re.fullmatch(r"[\w-]+", call[1]):
            assert call[1] in recipes(), call


def test_command_lines_are_found() -> None:
    """Also after a pipe, after variables, over two lines; comments and outputs are ignored."""
    page = """
```sh
CCPIPE_X=1 ccpipe tail --name 'cpu_*' > cpu.csv   # ccpipe no
sinfo | ccpipe nodelist compress && .venv/bin/ccpipe up \\
  --for 3s
```

```
ccpipe is up: cluster local
ccpipe-fritz  180211
```

```toml
ccpipe = 1
```
"""
    assert list(command_lines(page)) == [
        ["tail", "--name", "cpu_*"],
        ["nodelist", "compress"],
        ["up", "--for", "3s"],
    ]
    assert sum(len(list(command_lines(path.read_text()))) for path in PAGES) > 200


NOT_RUN = {
    r"backfill .*|validate victoriametrics": "needs a database; tests of stores start theirs",
    r"bridge (from-kafka|from-mqtt)": "needs that broker; tests/bus starts it",
    r"bridge (slurm|slurm-jobs)": "needs Slurm; `make slurm` starts one",
    r"bridge fritz\.toml alex\.toml": "needs two Slurms; tests/bridges/test_slurm_clusters.py",
    r"query .* --dir (delta|'s3://.*)": "needs a Delta table; tests/cli/query/test_delta.py",
    r"bridge (gridengine|from-jobanalyzer|slurm-hdf5)": "follows a site's own files",
    r"control (get|set) .*": "needs nodes that answer; tests/cli/test_control.py starts one",
    r"dashboard --listen 0\.0\.0\.0:.*": "would listen to everybody",
    r".* /var/lib/ccpipe/.*|.* /data/.*": "reads a site's own files",
    r".* --server nats://10\.0\.0\.1:4222.*": "needs another site's broker",
}
"""Patterns of command lines, and why they cannot run here."""

DEAD_LETTERS = 17
"""The highest ID of a dead letter that a page shows."""

FIND_NOTHING = r"acct .*-j 4711.*|acct slurm .*--user alice.*"
"""Commands that search for data not in the test data, and exit with 1."""

SHORTER = {"bridge": "1s", "dashboard": "1s", "publish": "1s", "simulate": "2s", "tail": "5s"}
"""Durations for commands that run until Ctrl-C, unless the page has a shorter one.

That of ``tail`` has the time until it is connected in it."""

MORE = {
    "bridge": ("--dry-run",),  # up to its store, which is not here
    "dashboard": ("--listen", "127.0.0.1:0"),
    "top": ("--once", "--for", "1s"),  # without a terminal
}
"""Options added to a command so that it can run in parallel with others."""

LINES = list(
    dict.fromkeys(
        shlex.join(call)
        for page in PAGES
        if page.name != "commands.md"  # written from --help, whose examples are the commands' own
        for call in command_lines(page.read_text(encoding="utf-8"))
        if call
    )
)


def why_not(line: str) -> str | None:
    return next((why for pattern, why in NOT_RUN.items() if re.fullmatch(pattern, line)), None)


def with_short_duration(words: Sequence[str]) -> list[str]:
    name, found = words[0], [*words]
    flag = "--duration" if name == "simulate" else "--for"
    if name in SHORTER and "--once" not in words:
        if flag in found:
            found[found.index(flag) + 1] = SHORTER[name]
        elif not {"--no-follow", "--until"} & {*found}:
            found += [flag, SHORTER[name]]
    more = [] if "--dry-run" in found and name == "bridge" else MORE.get(name, ())
    at = found.index("--") if "--" in found else len(found)
    return [*found[:at], *more, *found[at:]]


class Sandbox:
    """A directory with what the pages speak of, and a broker."""

    def __init__(self, directory: Path, server: NatsServer) -> None:
        self.directory = directory
        self.parquet_files = directory / "state" / "ccpipe" / "up" / "parquet"
        self.environment = environment(
            HOME=str(directory),
            XDG_STATE_HOME=str(directory / "state"),
            XDG_CONFIG_HOME=str(directory / "config"),
            CCPIPE_BUS__SERVERS=server.url,
            CCPIPE_CLUSTER="fritz",
            PATH=f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        )
        shutil.copytree(ROOT / "bridges", directory / "bridges")
        data = ROOT / "tests" / "data"
        shutil.copy(data / "gridengine" / "accounting", directory / "accounting")
        rows = data / "slurm" / "snapshots" / "sacct.1795171119.txt"
        for name in ("rows.txt", "sacct-2026-11.txt"):
            shutil.copy(rows, directory / name)
        (directory / "corrected.lp").write_text("temp,hostname=f01,type=node value=3 1740000000\n")
        for name in ("solver", "simulate"):
            (directory / name).write_text("#!/bin/sh\nexit 0\n")
            (directory / name).chmod(0o755)
        self.run("streams", "apply")
        self.run("simulate", "--nodes", "3", "--gpus", "1", "--duration", "3s", "--speed", "max")
        self.store()
        self.parquet_files.parent.mkdir(parents=True, exist_ok=True)
        (directory / "parquet").symlink_to(self.parquet_files)

    def store(self) -> None:
        """Write the stream's messages to the Parquet files; invalid ones become dead letters."""
        self.run("bridge", "bridges/parquet.toml", "--for", "4s", sink=str(self.parquet_files))

    def run(self, *words: str, code: int = 0, sink: str = "") -> str:
        """Run a command and return its output; fail with it if the command ends otherwise."""
        extra = {"CCPIPE_SINK__DIR": sink} if sink else {}
        done = subprocess.run(
            [sys.executable, "-m", "ccpipe", *self._expand(words)],
            cwd=self.directory,
            env={**self.environment, **extra},
            stdin=subprocess.DEVNULL,
            text=True,
            errors="backslashreplace",  # some outputs are binary
            capture_output=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == code, f"{words}: {done.returncode}\n{done.stderr[-3000:]}"
        assert "Traceback" not in done.stderr
        return done.stdout + done.stderr

    def _expand(self, words: Sequence[str]) -> Iterator[str]:
        for word in words:
            found = sorted(path.name for path in self.directory.glob(word)) if "*" in word else []
            yield from found or [re.sub("^~", str(self.directory), word)]


@pytest.fixture
async def sandbox(tmp_path: Path) -> AsyncIterator[Sandbox]:
    async with NatsServer(tmp_path / "nats", port=free_port()) as server:
        (tmp_path / "here").mkdir()
        sandbox = Sandbox(tmp_path / "here", server)
        client = await nats.connect(server.url)
        for number in range(DEAD_LETTERS):
            await client.publish("fritz.metrics", b"not a line %d" % number)
        await client.close()
        sandbox.store()
        yield sandbox


@pytest.mark.long
@pytest.mark.timeout(900)
def test_command_lines_of_pages_run(sandbox: Sandbox) -> None:
    """Each ends with exit code 0; only its duration is changed."""
    failures = []
    # The exit code of ``check`` depends on the unread messages: run it before others publish more.
    for line in sorted(LINES, key=lambda line: not line.startswith("check ")):
        if why_not(line) is None:
            try:
                code = 1 if re.fullmatch(FIND_NOTHING, line) else 0
                sandbox.run(*with_short_duration(shlex.split(line)), code=code)
            except AssertionError as error:
                failures.append(str(error))
    assert not failures, "\n".join(failures)


def test_skipped_command_lines_are_in_pages() -> None:
    """No pattern remains from a page that has changed, and most lines run."""
    for pattern in NOT_RUN:
        assert any(re.fullmatch(pattern, line) for line in LINES), pattern
    assert sum(why_not(line) is None for line in LINES) > len(LINES) * 0.6
