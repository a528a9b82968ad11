"""``ccpipe version``: versions for a bug report."""

import json
import platform
from importlib import metadata

import pytest

from ccpipe import __version__
from ccpipe.cli import version as versions
from ccpipe.formats.kernel import FORMATS
from tests.cli.command import ccpipe


def test_version_shows_ccpipe_kernel_python_and_libraries() -> None:
    """In the table and in JSON."""
    shown = ccpipe("version")
    assert shown.code == 0
    heads, *lines = shown.out.splitlines()
    assert heads.split() == ["WHAT", "VERSION"]
    rows = dict(line.split(None, 1) for line in lines)
    assert rows["ccpipe"] == __version__
    assert rows["kernel"] == versions.kernel()
    assert rows["python"].startswith(platform.python_version())
    assert rows["pyarrow"] == metadata.version("pyarrow")
    assert "pytest" not in rows
    facts = json.loads(ccpipe("version", "-o", "json").out)
    assert (facts["ccpipe"], facts["libraries"]["pyarrow"]) == (__version__, rows["pyarrow"])


@pytest.mark.parametrize(
    ("missing", "expected"),
    [
        ((), "compiled"),
        (FORMATS, "python"),
        (("gridengine",), "gridengine python, lineprotocol compiled"),
    ],
)
def test_version_shows_missing_kernels(
    missing: tuple[str, ...], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One word if all are alike, else each format's."""
    found = {name: "python" if name in missing else "compiled" for name in FORMATS}
    monkeypatch.setattr(versions, "kernels", lambda: found)
    assert versions.kernel() == expected


def test_version_shows_pip_command_for_missing_library(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the extra that installs it."""
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
