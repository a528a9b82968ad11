"""Code blocks of the pages other than command lines: each is read or run by the real code.

Command lines run in ``test_command_lines``. Blocks that cannot run are listed with the reason.
"""

import json
import re
import shutil
import subprocess
import sys
import textwrap
import time
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from ccpipe.bus.nats.accounts import SUBJECTS
from ccpipe.config import Site, to_struct
from ccpipe.config.site import Recipe
from ccpipe.formats.lineprotocol import decode, to_lines
from ccpipe.jobs.pending import PendingEvent, read_pending_event
from ccpipe.message import Message, event, metric
from ccpipe.node.agent.parts import AgentParts
from ccpipe.registry import build
from ccpipe.sinks.parquet import ParquetSink
from ccpipe.sources.stored.parquet_tables import tables
from ccpipe.telemetry import Telemetry
from tests.cli.command import environment
from tests.pages.test_command_lines import FENCE, PAGES, command_lines
from tests.paths import ROOT
from tests.servers.postgres import Server
from tests.sinks.postgres.conftest import server  # noqa: F401 - a fixture

ELSEWHERE = {
    "docs/node/processing.md": "test_processing_page",
    "docs/guide/python.md": "test_python_page",
    "docs/guide/tutorial.md": "test_tutorial",
    "docs/operations/dashboard.md": "test_dashboard_page",
    "docs/reference/wire.md": "test_wire_page",
}
"""Pages with tests of their own."""

NOT_RUN = {
    r"make (up|test) ": "installs everything; CI runs it",
    r"make wheels": "takes minutes, and tries what it builds",
    r"debootstrap": "installs a Debian to build a wheel there",
    r"\[agent\]": "Telegraf's own",
    r"make images": "make site builds them",
    r"docker build ": "the same Dockerfile with another argument",
    r"\[containers\]": "podman's own, with which tests/site runs it",
    r"cat >> .env ": "tests/site/test_images.py runs it by podman-compose",
    r"bridges/compose/prepare\.sh": "Docker; tests/deployment reads the files",
    r"(kubectl|helm) ": "Kubernetes; tests/deployment validates the manifests",
    r"export TZ=UTC; now=": "Slurm's commands; `make slurm` starts them",
    r"\$ mosquitto_sub": "tests/e2e/mqtt reads the same topics",
    r"server_name: ": "tests/e2e/mqtt configures a nats-server so",
    r"(<dir>/|messages-)": "names of files",
    r"# dead letter ": "tests/formats/test_dead_letters.py reads such dead letters",
    r"SELECT cluster, job, ": "tests/sinks/postgres/test_sonar.py runs it",
    r"(?s).*create_hypertable": "TimescaleDB, which no package here has",
    r"SELECT \* FROM read_parquet": "tests/sinks/parquet/test_sink.py reads files so",
    r"otlp:": "Prometheus' own, which tests/servers/otlp.py starts so",
    r"storage:": "Prometheus' own, which tests/servers/prometheus.py starts so",
    r'"api-subjects":': "cc-backend's own, which tests/bridges start so",
    r"JOB   USER": "tests/cli/jobs prints such tables",
    r"14:30:00  job ": "tests/cli/console/test_event_text.py writes such lines",
    r"\[project|# pyproject\.toml": "of a package; tests/pages/test_python_page.py installs one",
}  # fmt: skip
"""How blocks begin that nothing here reads, and why."""


class Block(NamedTuple):
    """A block of a page."""

    page: str
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}: {self.text.strip().splitlines()[0]:.40}"


def blocks() -> Iterator[Block]:
    for path in PAGES:
        page = str(path.relative_to(ROOT))
        text = path.read_text(encoding="utf-8")
        if page not in ELSEWHERE and "generate_reference.py" not in text:
            for found in FENCE.finditer(text):
                yield Block(page, found["language"], textwrap.dedent(found["text"]))


def is_not_run(block: Block) -> bool:
    return any(re.match(pattern, block.text) for pattern in NOT_RUN)


BLOCKS = list(blocks())
TOML = [block for block in BLOCKS if block.language == "toml" and not is_not_run(block)]
PYTHON = [block for block in BLOCKS if block.language == "python"]
SQL = [block for block in BLOCKS if block.language == "sql" and not is_not_run(block)]
QUEUES = [block for block in BLOCKS if block.language == "json" and '"pending":' in block.text]
LINES = [block for block in BLOCKS if re.match(r"[\w.]+,hostname=", block.text)]


def test_every_block_is_checked_or_listed_with_reason() -> None:
    """A new kind of block, or a page's first one, needs a check."""
    known = {*TOML, *PYTHON, *SQL, *QUEUES, *LINES}
    left = [
        str(block)
        for block in BLOCKS
        if block not in known
        and not is_not_run(block)
        and not list(command_lines(f"```sh\n{block.text}```\n"))
        and "ccpipe" not in block.text  # output of a command
    ]
    assert not left
    unused = [p for p in NOT_RUN if not any(re.match(p, block.text) for block in BLOCKS)]
    assert not unused
    assert all((ROOT / f"tests/pages/{test}.py").is_file() for test in ELSEWHERE.values())


@pytest.mark.parametrize("block", QUEUES, ids=str)
def test_pending_jobs_of_page_are_read_completely(block: Block) -> None:
    message = event("jobpending", "jobpending", block.text, time=1, tags={})
    found = read_pending_event(message)
    assert msgspec.to_builtins(without_owner(found)) == json.loads(block.text)


def without_owner(found: PendingEvent) -> PendingEvent:
    """Return an event as it is sent: its jobs do not repeat their cluster and user."""
    jobs = [msgspec.structs.replace(job, cluster="", user="") for job in found.pending]
    return msgspec.structs.replace(found, pending=jobs)


@pytest.mark.parametrize("block", TOML, ids=str)
def test_configuration_blocks_are_accepted(block: Block, tmp_path: Path) -> None:
    """No key is unknown; sources, translators, sinks and collectors are constructed from it."""
    text = block.text.replace("/var/lib/ccpipe", str(tmp_path))
    tree = tomllib.loads(text)
    where = Path(block.page).name
    if not {"source", "sink", "translate"} & tree.keys():
        site = to_struct(tree, Site, where)
        if site.publish != Site().publish:
            AgentParts.of(site, None, Telemetry())
        return
    ends = {"source": {"use": "null"}, "sink": {"use": "null"}}
    subjects = {"bus": {"subjects": SUBJECTS}} if "identity" in text else {}
    recipe = to_struct(ends | subjects | tree, Recipe, where)
    context: Mapping[str, Any] = {"site": recipe, "telemetry": Telemetry()}
    build("sources", recipe.source, where=where, path="source", context=context)
    for table in recipe.translate:
        build("translators", table, where=where, path="translate", context=context)
    build("sinks", recipe.sink, where=where, path="sink", context=context)


@pytest.mark.parametrize("block", PYTHON, ids=str)
def test_python_blocks_run(block: Block, tmp_path: Path) -> None:
    """With the files that they name, which are real ones."""
    shutil.copy(ROOT / "tests/data/gridengine/accounting", tmp_path / "accounting")
    shutil.copy(ROOT / "tests/data/sonar/recorded.json", tmp_path / "samples.json")
    done = subprocess.run(
        [sys.executable, "-W", "ignore::ResourceWarning", "-c", block.text],
        cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("block", LINES, ids=str)
def test_line_blocks_are_valid(block: Block) -> None:
    """And follow the rules of the specification."""
    lines = decode(block.text.encode())
    assert not lines.rejected
    assert not [problem for line in lines for problem in line.problems()]


def load(node: str) -> list[Message]:
    tags = {"cluster": "fox", "hostname": node, "type": "node"}
    return [metric("cpu_load", 1.5, time=time.time_ns(), tags=tags)]


async def test_queries_of_parquet_files_return_rows(tmp_path: Path) -> None:
    """Run as by ``ccpipe query``."""
    async with ParquetSink(dir=str(tmp_path)) as sink:
        await sink.write(to_lines(load("n1")))
    queries = [block for block in SQL if block.page == "docs/guide/query.md"]
    assert queries
    for block in queries:
        with tables(tmp_path) as connection:
            [(_, node, value)] = connection.execute(block.text).fetchall()
        assert (node, value) == ("n1", 1.5)


async def test_sql_of_postgresql_is_accepted(server: Server) -> None:  # noqa: F811
    """Queries return rows; the granted rights are sufficient for a bridge."""
    database = await server.database()
    async with server.sink(database) as sink:
        await sink.write(to_lines(load("n1")))
    await server.ask(database, "CREATE ROLE writer")
    for block in SQL:
        if block.page == "docs/stores/postgres.md":
            answers = [
                await server.ask(database, statement)
                for statement in block.text.split(";")
                if statement.strip()
            ]
            if block.text.startswith("SELECT"):
                assert [row[1:] for row in answers[0]] == [("n1", 1.5)]
    granted = await server.ask(
        database, "SELECT has_table_privilege('writer', 'samples', 'INSERT')"
    )
    assert granted == [(True,)]


def test_programs_named_by_pages_exist() -> None:
    """Benchmarks, scripts and targets of ``make``."""
    texts = [path.read_text(encoding="utf-8") for path in PAGES]
    texts += [path.read_text(encoding="utf-8") for path in (ROOT / "benchmarks").rglob("*.py")]
    text = " ".join("\n".join(texts).split())
    modules = set(re.findall(r"python -m (benchmarks[\w.]*\w)", text))
    assert len(modules) > 15
    for module in modules:
        path = ROOT / module.replace(".", "/")
        assert path.with_suffix(".py").is_file() or (path / "__main__.py").is_file(), module
    for script in re.findall(r"\bscripts/\w+\.\w+", text):
        assert (ROOT / script).is_file(), script
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"`make ([a-z-]+)", text)) <= targets
