"""The minimal parts in ``CONTRIBUTING.md``, in another package."""

import ast
import asyncio
import contextlib
import os
import re
import subprocess
import sys
from pathlib import Path

import nats
import pytest

from ccpipe.bus.nats.server import NatsServer
from tests.cli.command import install, run_installed
from tests.paths import ROOT

PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
CODE = "\n".join(re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE))
[ENTRY_POINTS] = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
LINES = {"Dice": 8, "Printer": 4, "above": 2, "Uptime": 4, "Words": 2, "WordCodec": 11}

WRONG = """
import asyncio
from ccpipe import Sink, run, sonar
from ccpipe_smallest import Dice

class Wrong(Sink[sonar.Envelopes]):
    takes = sonar.Envelopes

    async def write(self, records: sonar.Envelopes) -> None: ...

asyncio.run(run(Dice(), Wrong()))
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    install(tmp_path, "ccpipe_smallest", ENTRY_POINTS, CODE)
    return tmp_path


def test_example_parts_have_stated_number_of_lines() -> None:
    """Without blank lines."""
    parts = [
        each for each in ast.parse(CODE).body if isinstance(each, ast.ClassDef | ast.FunctionDef)
    ]
    texts = {each.name: ast.get_source_segment(CODE, each) or "" for each in parts}
    line = re.compile(r"^.+$", re.MULTILINE)
    assert {name: len(line.findall(text)) for name, text in texts.items()} == LINES


def test_example_source_translator_and_sink_run_in_recipe(package: Path) -> None:
    """The recipe names them like built-in parts."""
    recipe = package / "dice.toml"
    recipe.write_text(
        '[source]\nuse = "dice"\n[[translate]]\nuse = "above"\nlimit = 3\n[sink]\nuse = "printer"\n'
    )
    assert "dice → above → printer" in run_installed(package, "validate", "--connect", str(recipe))
    printed = run_installed(package, "bridge", str(recipe), "--for", "2s")
    values = set(re.findall(r"name='pips'.* value=(\d)", printed))
    assert values
    assert values <= {"4", "5", "6"}


def test_example_collector_is_published(package: Path) -> None:
    """With the built-in ones."""
    published = run_installed(package, "publish", "--once", "--dry-run")
    assert re.search(r"^uptime,\S+ value=\d", published, re.MULTILINE)


async def test_example_codec_reads_and_writes_its_records(
    package: Path, nats_server: NatsServer
) -> None:
    """From and to a broker, neither of which knows them."""
    recipe = package / "words.toml"
    recipe.write_text(
        f'[bus]\nservers = ["{nats_server.url}"]\n[source]\nuse = "nats"\ncodec = "words"\n'
        'subjects = ["words.in"]\n[sink]\nuse = "nats"\ncodec = "words"\n'
    )
    await asyncio.to_thread(run_installed, package, "validate", "--connect", str(recipe))
    client = await nats.connect(nats_server.url)
    subscription = await client.subscribe("words.out")
    bridge = asyncio.create_task(
        asyncio.to_thread(run_installed, package, "bridge", str(recipe), "--for", "10s")
    )
    received = b""
    while not received and not bridge.done():
        await client.publish("words.in", b"a  word\n")
        with contextlib.suppress(nats.errors.TimeoutError):
            received = (await subscription.next_msg(0.2)).data
    await bridge
    await client.close()
    assert received.startswith(b"a word")


def test_type_checker_rejects_incompatible_parts(package: Path) -> None:
    """It accepts the parts, and rejects a sink of envelopes after a source of lines."""
    wrong = package / "wrong.py"
    wrong.write_text(WRONG)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", str(package / "ccpipe_smallest.py"), str(wrong)],
        cwd=ROOT, env={**os.environ, "MYPYPATH": str(package)}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    errors = [line for line in done.stdout.splitlines() if "error:" in line]
    assert len(errors) == 1, done.stdout
    assert re.search(r"\bwrong\.py:11: error: .*\brun\b", errors[0])
