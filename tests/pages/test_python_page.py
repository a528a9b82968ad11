"""``docs/guide/python.md``: each program runs unchanged, with ``ccpipe up`` if it uses the bus."""

import ast
import asyncio
import contextlib
import json
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import NamedTuple

import nats
import pytest
from nats.aio.client import Client
from nats.aio.subscription import Subscription

import ccpipe
from ccpipe.process.die_with_parent import die_with_parent
from tests.cli.command import command, environment, install, run_installed
from tests.conftest import eventually, free_port
from tests.paths import ROOT, TEST_DATA

PAGE = (ROOT / "docs/guide/python.md").read_text(encoding="utf-8")


class Block(NamedTuple):
    """A block of code, by the heading above it."""

    heading: str
    language: str
    text: str


def blocks() -> list[Block]:
    found, heading = [], ""
    for match in re.finditer(
        r"^## ([^\n]+)$|^```(\w+)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE
    ):
        if match[1]:
            heading = match[1]
        else:
            found.append(Block(heading, match[2], match[3]))
    return found


def block(heading: str, number: int = 0, language: str = "python") -> str:
    found = [b.text for b in blocks() if (b.heading, b.language) == (heading, language)]
    return found[number]


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    directory = tmp_path_factory.mktemp("up")
    environ = environment(XDG_STATE_HOME=str(directory), PYTHONUNBUFFERED="1")
    log = directory / "log"
    options = ["--no-dashboard", "--port", str(free_port()), "--interval", "2s"]
    with (
        log.open("w") as output,
        subprocess.Popen(
            command("up", *options), env=environ, stdout=output, stderr=output
        ) as process,
    ):
        try:
            while "ccpipe is up" not in log.read_text():
                assert process.poll() is None, log.read_text()
                time.sleep(0.05)
            yield environ
        finally:
            process.terminate()


async def start(code: str, directory: Path, environ: dict[str, str]) -> asyncio.subprocess.Process:
    script = directory / "script.py"
    script.write_text(code)
    return await asyncio.create_subprocess_exec(
        sys.executable, "-W", "error", str(script), cwd=directory, env=environ,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, preexec_fn=die_with_parent,
    )  # fmt: skip


async def ended(process: asyncio.subprocess.Process, warning: bytes = b"") -> str:
    """Wait for the end of a program; return what it printed. It may log one warning."""
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert (process.returncode, err.count(b"\n")) == (0, bool(warning)), err
    assert warning in err
    return out.decode()


@contextlib.asynccontextmanager
async def connected(environ: dict[str, str]) -> AsyncIterator[Client]:
    announced = Path(environ["XDG_STATE_HOME"], "ccpipe", "up.json")
    client = await nats.connect(json.loads(announced.read_text())["url"])
    yield client
    await client.close()


@contextlib.asynccontextmanager
async def received(environ: dict[str, str], subject: str) -> AsyncIterator[Subscription]:
    async with connected(environ) as client:
        subscription = await client.subscribe(subject)
        await client.flush()
        yield subscription


async def until_acknowledged(environ: dict[str, str], durable: str) -> None:
    async with connected(environ) as client, asyncio.timeout(60):
        jetstream = client.jetstream()
        while (await jetstream.consumer_info("ccpipe-local", durable)).num_ack_pending:
            await asyncio.sleep(0.02)


def test_every_block_has_test() -> None:
    """A new one needs a test here."""
    count = Counter(each.heading for each in blocks())
    assert count == {
        "Decode and encode": 4, "Publish": 2, "Subscribe": 2, "Sonar": 2, "Jobs": 2,
        "Plug-ins": 7, "Jobs of another scheduler": 3,
    }  # fmt: skip


def test_table_lists_public_interface_in_order() -> None:
    """All names of ``__all__`` and no others."""
    rows = re.findall(r"^\| (`.+?)\n", PAGE, re.MULTILINE)
    names = re.findall(r"`(\w+)`", "".join(rows))
    assert list(dict.fromkeys(names)) == ccpipe.__all__


def test_page_imports_public_names_only() -> None:
    """Those in ``__all__``."""
    imports, used = set[str](), set[str]()
    for each in blocks():
        for node in ast.walk(ast.parse(each.text if each.language == "python" else "")):
            if isinstance(node, ast.Import):
                imports |= {name.name for name in node.names}
            elif isinstance(node, ast.ImportFrom):
                imports.add(node.module or "")
                used |= {name.name for name in node.names if node.module == "ccpipe"}
            elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "ccpipe":
                used.add(node.attr)
    assert "ccpipe" in imports
    assert not [name for name in imports if name.startswith("ccpipe.")]
    assert used <= set(ccpipe.__all__)
    assert {"connect", "decode", "Sink"} <= used


@pytest.mark.parametrize(
    ("heading", "number"), [("Decode and encode", 0), ("Decode and encode", 1), ("Sonar", 0)]
)
async def test_program_prints_output_of_page(heading: str, number: int, tmp_path: Path) -> None:
    """Exactly."""
    process = await start(block(heading, number), tmp_path, environment())
    assert await ended(process) == block(heading, number, "text")


async def test_program_reads_jobs_of_accounting_file(tmp_path: Path) -> None:
    """Each record is printed; the table has the sum of each user."""
    accounting = (TEST_DATA / "gridengine/accounting").read_bytes()
    (tmp_path / "accounting").write_bytes(accounting + b"broken\n")
    printed = await ended(await start(block("Jobs", 0), tmp_path, environment()), b"line 133: ")
    assert printed.count("ben completed") > 1
    assert printed.splitlines()[-1].startswith("line 133: ")
    table = await ended(
        await start(block("Jobs", 1), tmp_path, environment()), b"1 records rejected"
    )
    assert re.search(r"│ ben +│ ", table)


async def test_program_publishes_metric(up: dict[str, str], tmp_path: Path) -> None:
    """It is stored with the cluster of ``ccpipe up``, whose password is in its configuration."""
    async with received(up, "local.metrics") as subscription:
        await ended(await start(block("Publish", 0), tmp_path, up))
        payload = b""
        while not payload.startswith(b"water_temp,"):
            payload = (await subscription.next_msg(60)).data
    assert payload.startswith(b"water_temp,cluster=local,hostname=cooling1,type=node value=21.5 ")


async def test_program_publishes_event_log_line_and_records(
    up: dict[str, str], tmp_path: Path
) -> None:
    """Each is published on the subject of its kind."""
    wanted = {
        "local.events.maintenance": b"maintenance,cluster=local,function=drain,hostname=cooling1,",
        "local.log.backup": b"backup,cluster=local,hostname=",
        "local.metrics": b"water_temp,hostname=c2,type=node value=22.5",
    }
    async with received(up, "local.>") as subscription:
        await ended(await start(block("Publish", 1), tmp_path, up))
        while wanted:
            message = await subscription.next_msg(60)
            if message.data.startswith(wanted.get(message.subject, b"none")):
                del wanted[message.subject]


async def test_program_subscribes(up: dict[str, str], tmp_path: Path) -> None:
    """It prints what the publisher of ``ccpipe up`` sends."""
    process = await start(block("Subscribe", 0), tmp_path, up)
    assert process.stdout is not None
    printed = await asyncio.wait_for(process.stdout.readline(), 60)
    process.terminate()
    _, err = await process.communicate()
    assert re.fullmatch(rb"\S+ \w+ [-+.e0-9]+\n", printed), err
    assert err == b""


async def test_program_subscribes_durably(up: dict[str, str], tmp_path: Path) -> None:
    """Messages published while it does not run are written by its next run."""
    archive = tmp_path / "archive.lp"
    for wanted in (b"cpu_load,", b"water_temp,"):
        process = await start(block("Subscribe", 1), tmp_path, up)
        await eventually(lambda: archive.exists() and wanted in archive.read_bytes())  # noqa: B023
        await until_acknowledged(up, "archive")  # the rest would be delivered after 20 s
        process.terminate()
        _, err = await process.communicate()
        assert err == b""
        archive.unlink()
        await ended(await start(block("Publish", 0), tmp_path, up))


@pytest.fixture
def package(tmp_path: Path) -> Path:
    code = "\n".join(b.text for b in blocks() if b.text.startswith("# ccpipe_example.py\n"))
    install(tmp_path, "ccpipe_example", block("Plug-ins", language="toml"), code)
    return tmp_path


def test_collector_of_package_is_published(package: Path) -> None:
    """With the tags of the node, and with a unit."""
    shown = run_installed(package, "publish", "--once", "--dry-run", "-o", "json")
    messages = [json.loads(line) for line in shown.splitlines()]
    (uptime,) = [message for message in messages if message["name"] == "uptime"]
    assert uptime["value"] > 0
    assert {"cluster", "hostname", "type"} <= set(uptime["tags"])
    configured = run_installed(package, "config", "clustercockpit", "uptime")
    assert json.loads(configured)["metrics"]["uptime"]["frequency"] == 10


def test_parts_of_package_run_in_recipe(package: Path) -> None:
    """The page's recipe runs to its end, and each option has its effect."""
    (package / "recipe.toml").write_text(block("Plug-ins", 1, "toml"))
    listed = run_installed(package, "plugins")
    run_installed(package, "bridge", "recipe.toml")
    rows = [json.loads(line) for line in (package / "pips.jsonl").read_text().splitlines()]
    assert listed.count("ccpipe-example 1.0") == 5
    assert 0 < len(rows) < 20
    assert {name for name, _, _ in rows} == {"pips"}
    assert {value for _, value, _ in rows} <= {40, 50, 60}


PBS = """\
11/20/2025 10:00:00;S;4711.pbs;user=alice queue=work start=1763632800 exec_host=n01/0*4+n02/0*4
11/20/2025 11:00:00;E;4711.pbs;user=alice account="hpc" queue=work start=1763632800 \
exec_host=n01/0*4+n02/0*4 end=1763636400 Exit_status=0 resources_used.cput=03:10:00
11/20/2025 11:00:01;E;4712.pbs;user=bob queue=work
11/20/2025 11:30:00;E;4713.pbs;user=bob queue=work start=1763637000 exec_host=n03/0 \
end=1763638200 Exit_status=271
"""


def test_source_of_another_scheduler_gives_starts_and_stops(tmp_path: Path) -> None:
    """The page's source reads OpenPBS's accounting; a record without a field is skipped."""
    heading = "Jobs of another scheduler"
    install(tmp_path, "ccpipe_pbs", block(heading, language="toml"), block(heading))
    (tmp_path / "recipe.toml").write_text(block(heading, 1, "toml"))
    (tmp_path / "20251120").write_text(PBS)
    run_installed(tmp_path, "bridge", "recipe.toml")
    events = ccpipe.decode((tmp_path / "events.lp").read_bytes())
    jobs = [(each.tags["function"], json.loads(str(each.value))) for each in events]
    assert [(function, job["jobId"]) for function, job in jobs] == [
        ("start_job", 4711), ("stop_job", 4711), ("start_job", 4713), ("stop_job", 4713)
    ]  # fmt: skip
    assert jobs[0][1]["resources"] == [{"hostname": "n01"}, {"hostname": "n02"}]
    assert [job["jobState"] for _, job in jobs[1::2]] == ["completed", "failed"]
    assert jobs[1][1]["stopTime"] == 1763636400
