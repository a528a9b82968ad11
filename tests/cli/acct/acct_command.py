"""``ccpipe acct`` in this process, shared by its tests."""

import csv
import io
import json
from typing import Protocol

import pytest
from cyclopts import CycloptsError

from ccpipe.cli.acct.command import acct
from ccpipe.errors import CcpipeError
from tests.cli.command import Ended


class Acct(Protocol):
    """Runs ``ccpipe acct`` to its end."""

    def __call__(self, *arguments: object) -> Ended: ...


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> Ended:
    """Run the command as ``ccpipe.cli.main`` does, errors and exit codes included."""
    code: object = 0
    stderr = ""
    try:
        acct([str(argument) for argument in arguments], exit_on_error=False, print_error=False)
    except SystemExit as end:
        code = end.code or 0
    except (CcpipeError, CycloptsError) as error:
        code = getattr(error, "exit_code", 64)
        stderr = f"ccpipe: {error}\n"
    assert isinstance(code, int)
    out, err = capsys.readouterr()
    return Ended(code, out, err + stderr)


def rows(shown: Ended) -> list[dict[str, object]]:
    if shown.out.startswith("{"):
        return [json.loads(line) for line in shown.out.splitlines()]
    return list(csv.DictReader(io.StringIO(shown.out)))
