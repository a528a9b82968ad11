"""The pages and the manual page that are generated in ``docs/reference/``."""

import ast
import re
import subprocess

import ccpipe as ccpipe_library
from ccpipe import errors
from ccpipe.bus.subjects import TEMPLATES
from ccpipe.cli import COMMANDS
from ccpipe.node.sampling.collector import declared
from scripts.python_reference import INTERNAL
from tests.conftest import program
from tests.paths import ROOT

REFERENCE = ROOT / "docs/reference"
MANUAL = REFERENCE / "ccpipe.1"


def rows(page: str) -> list[list[str]]:
    lines = (REFERENCE / page).read_text().splitlines()
    return [re.split(r"(?<!\\) *\| *", line)[1:-1] for line in lines if line.startswith("| ")]


def test_reference_has_every_command() -> None:
    """In the order of ``ccpipe --help``."""
    headings = re.findall(
        r"^## ccpipe (\S+)$", (REFERENCE / "commands.md").read_text(), re.MULTILINE
    )
    assert headings == list(COMMANDS)


def test_reference_has_code_of_every_error() -> None:
    """As in the tree in ``errors.py``."""
    tree = dict(
        re.findall(r"(\w+Error|MissingExtra)\b.*exit (\d+)$", errors.__doc__ or "", re.MULTILINE)
    )
    found = {name.strip("`"): code for code, name, _ in rows("exit-codes.md")}
    assert len(tree) >= 8
    assert tree.items() <= found.items()


def test_reference_has_every_subject() -> None:
    """With its template."""
    found = {name.strip("`"): template.strip("`") for name, template, _ in rows("subjects.md")}
    assert TEMPLATES.items() <= found.items()


def test_reference_has_every_metric() -> None:
    """By its name or its family, with its unit; and no row only repeats a name."""
    found = {(name.strip("`"), unit) for name, unit, *_ in rows("metrics.md")}
    assert {(metric.family or metric.name, metric.unit) for metric in declared()} <= found
    for name, _, _, _, meaning in rows("metrics.md"):
        assert not re.fullmatch(r"`\S+`|operation \S+", meaning), name


def test_reference_has_every_public_name() -> None:
    """With its docstring; methods and attributes of the classes as well."""
    text = (REFERENCE / "python.md").read_text()
    assert sorted(re.findall(r"^### (\w+)$", text, re.MULTILINE)) == sorted(ccpipe_library.__all__)
    assert re.search(r"^#### Lines.take\n\n```python\ndef take\(keep: ", text, re.MULTILINE)
    assert "-> Lines\n" in text
    assert "| `origin` | `str` | Origin of records" in text
    for block in re.findall(
        r"^```python\n((?:async )?def .*?)^```", text, re.MULTILINE | re.DOTALL
    ):
        ast.parse(f"{block.rstrip()}: ...")


def test_reference_has_no_internal_attribute() -> None:
    """Each of those left out exists, and none of them has a heading or a row."""
    text = (REFERENCE / "python.md").read_text()
    for cls, names in INTERNAL.items():
        section = text.split(f"\n### {cls}\n")[1].split("\n### ", maxsplit=1)[0]
        for name in names.split():
            assert hasattr(getattr(ccpipe_library, cls), name), (cls, name)
            assert f"#### {cls}.{name}" not in section
            assert f"| `{name}` |" not in section
    assert "Carry everything from `source` through `translators` to `sink`" in text


def test_manual_page_has_no_errors() -> None:
    """Groff formats it without a warning and keeps the text."""
    groff = program("groff", "groff-base")
    shown = subprocess.run(
        [groff, "-man", "-ww", "-Tascii", "-P-c", MANUAL],
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stderr == ""
    text = re.sub(r".\x08", "", shown.stdout)
    assert "ccpipe tail --node 'f[0101-0164]' --name 'cpu_*' --for 30s -o csv > cpu.csv" in text
    assert "CCPIPE_SINK__URL=http://db:8428 ccpipe bridge victoriametrics" in text


def test_manual_page_is_installed() -> None:
    """In the directory where ``man`` searches for the command's page."""
    text = (ROOT / "pyproject.toml").read_text()
    assert '"share/man/man1" = ["docs/reference/ccpipe.1"]' in text
