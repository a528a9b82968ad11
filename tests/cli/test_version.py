"""``ccpipe version``: what a bug report needs."""

import json
import platform
from importlib import metadata

import pytest

from ccpipe import __version__
from ccpipe.cli import version as versions
from ccpipe.formats.kernel import FORMATS
from tests.cli.command import ccpipe


def test_it_names_ccpipe_the_kernel_python_and_the_libraries() -> None:
    """Everything whose version matters is in the table, and in JSON."""
    shown = ccpipe("version")
    assert shown.code == 0
    rows = dict(line.split(None, 1) for line in shown.out.splitlines()[1:])
    assert rows["ccpipe"] == __version__
    assert rows["kernel"] == versions.kernel()
    assert rows["python"].startswith(platform.python_version())
    assert rows["pyarrow"] == metadata.version("pyarrow")
    assert "pytest" not in rows
    facts = json.loads(ccpipe("version", "-o", "json").out)
    assert (facts["ccpipe"], facts["libraries"]["pyarrow"]) == (__version__, rows["pyarrow"])


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        ((), "compiled"),
        (FORMATS, "python"),
        (("gridengine",), "gridengine python, lineprotocol compiled"),
    ],
)
def test_it_says_which_kernels_are_missing(
    missing: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One word where all are alike, else each format's."""
    found = {name: "python" if name in missing else "compiled" for name in FORMATS}
    monkeypatch.setattr(versions, "kernels", lambda: found)
    assert versions.kernel() == said


def test_a_missing_library_comes_with_the_line_to_type(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The extra that brings a library is named."""
    real = metadata.version

    def version_of(name: str) -> str:
        if name in ("pyarrow", "psutil"):
            raise metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(metadata, "version", version_of)
    versions.version()
    rows = dict(line.split(None, 1) for line in capsys.readouterr().out.splitlines())
    assert rows["pyarrow"] == "not installed, pip install 'ccpipe[parquet]'"
    assert rows["psutil"] == "not installed, pip install 'psutil'"
