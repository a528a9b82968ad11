"""``ccpipe nodelist``: lists of nodes on the command line."""

import io
import sys
from collections.abc import Callable

import pytest

from ccpipe.cli.nodelist import compress, count, expand
from ccpipe.errors import DataError, UsageError


def test_nodelist_expands_compresses_and_counts(capsys: pytest.CaptureFixture[str]) -> None:
    """All lists in their order; compressed, each node occurs once."""
    expand("n[08-10]", "login")
    assert capsys.readouterr().out == "n08\nn09\nn10\nlogin\n"
    compress("c1", "c[2-3]", "c3", "login")
    assert capsys.readouterr().out == "c[1-3],login\n"
    count("a[1-1000000000]", "b")  # more than could be written out
    assert capsys.readouterr().out == "1000000001\n"


@pytest.mark.parametrize("names", [(), ("-",)])
def test_nodelist_reads_standard_input(
    names: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lists on lines or between spaces, as ``sinfo`` and ``scontrol`` print them."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"c1 c2\nc[3-4]\n\n")))
    compress(*names)
    assert capsys.readouterr().out == "c[1-4]\n"


def test_nodelist_rejects_binary_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"c1\n\xff\n")))
    with pytest.raises(DataError, match="UTF-8"):
        count()


@pytest.mark.parametrize("command", [expand, compress])
def test_nodelist_limits_number_of_names(command: Callable[..., None]) -> None:
    """The message has the option that raises the limit."""
    with pytest.raises(UsageError, match="7 names exceed --max 6"):
        command("a[1-6]", "b", max_=6)


def test_nodelist_rejects_bad_list(capsys: pytest.CaptureFixture[str]) -> None:
    """Before anything is printed."""
    with pytest.raises(DataError, match="character 4"):
        expand("a[1-2]", "b[1")
    assert capsys.readouterr().out == ""
