"""``docs/guide/tutorial.md``, run unchanged except for ports."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from tests.cli.command import environment
from tests.conftest import eventually, free_port, program
from tests.paths import ROOT

PAGE = (ROOT / "docs/guide/tutorial.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def line(begin: str, port: int) -> list[str]:
    """Return the words of the page's command line that begins so, for a store at a port."""
    [found] = [each for block in BLOCKS for each in block.splitlines() if each.startswith(begin)]
    words = shlex.split(found.replace("127.0.0.1:8428", f"127.0.0.1:{port}"), comments=True)
    return [sys.executable, "-m", *words] if words[0] == "ccpipe" else words


@asynccontextmanager
async def running(
    command: list[str], directory: Path, environ: dict[str, str]
) -> AsyncIterator["subprocess.Popen[bytes]"]:
    with (directory / "out").open("ab") as out:
        process = subprocess.Popen(command, cwd=directory, env=environ, stdout=out, stderr=out)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)


@pytest.mark.long
async def test_tutorial_ends_with_answer_of_store(tmp_path: Path) -> None:
    """Broker, publisher, simulated cluster, store, bridge; the query finds all of the nodes."""
    program("victoria-metrics", "victoria-metrics")
    (tmp_path / "bridges").symlink_to(ROOT / "bridges")  # the page's shells are in a clone
    port = free_port()
    state = os.environ["XDG_STATE_HOME"]
    plain = environment(XDG_STATE_HOME=state)
    environ = {**plain, "CCPIPE_SINK__URL": f"http://127.0.0.1:{port}"}
    up = [sys.executable, "-m", "ccpipe", "up", "--port", str(free_port()), "--no-dashboard"]
    validate, query = line("ccpipe validate", port), line("curl", port)
    query[0] = str(program("curl", "curl"))

    def answer(command: list[str]) -> "subprocess.CompletedProcess[bytes]":
        return subprocess.run(command, env=environ, capture_output=True, timeout=60, check=False)

    def nodes() -> int:
        done = answer([*query, "--silent"])
        found = json.loads(done.stdout)["data"]["result"] if done.returncode == 0 else []
        return sum(int(row["value"][1]) for row in found)

    async with AsyncExitStack() as stack:
        for command in (up, line("victoria-metrics", port)):
            await stack.enter_async_context(running(command, tmp_path, plain))
        await eventually(lambda: answer(validate).returncode == 0)
        for command in (line("ccpipe simulate", port), line("ccpipe bridge", port)):
            await stack.enter_async_context(running(command, tmp_path, environ))
        await eventually(lambda: nodes() >= 21, 100)


def test_tutorial_writes_site(tmp_path: Path) -> None:
    """With the last command."""
    command = line("ccpipe init", 0)
    subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, check=True)

    def written() -> Iterator[str]:
        for path in (tmp_path / "site").rglob("*.*"):
            yield str(path.relative_to(tmp_path / "site"))

    assert {"ccpipe.toml", "nats.conf", "bridges/victoriametrics.toml"} < set(written())
    assert len(list((tmp_path / "site" / "systemd").iterdir())) >= 2
