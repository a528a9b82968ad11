"""Output of commands: tables that fit."""

from ccpipe.cli.console.output import table


def test_the_last_column_folds_below_itself() -> None:
    """No cell is lost and no line passes the width."""
    text = "a rather long reason with many words that does not fit into one line"
    lines = table([("x", text), ("yy", "short")], ("name", "reason"), width=40)
    assert max(map(len, lines)) <= 40
    assert " ".join(" ".join(lines[1:-1]).split()) == f"x {text}"
    assert lines[-1].split() == ["yy", "short"]
