"""The plain parser of ``version`` and the command's own read the same command lines alike."""

import pytest

from ccpipe.cli.app import app
from ccpipe.cli.version import plain


@pytest.mark.parametrize("line", ["", "-o json", "--output=json", "--output table"])
def test_plain_lines_show_what_the_command_shows(
    line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever reads the line."""
    assert plain.run(line.split()) is True
    shown = capsys.readouterr().out
    words = ["version", *line.split()]
    function, bound, _ = app.parse_args(words, exit_on_error=False, print_error=False)
    function(*bound.args, **bound.kwargs)
    assert capsys.readouterr().out == shown


@pytest.mark.parametrize("line", ["-o xml", "-o", "--output", "x", "--help", "-ojson", "-o=json"])
def test_other_lines_are_left_to_the_command(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Which knows what to say of mistakes."""
    assert plain.run(line.split()) is False
    assert capsys.readouterr().out == ""
