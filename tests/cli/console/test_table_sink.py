"""The sink that prints a table."""

import pytest

from ccpipe.cli.console.table_sink import TableSink
from ccpipe.formats.lineprotocol import to_lines
from ccpipe.message import metric

NODE = {"cluster": "fritz", "hostname": "e1", "type": "node"}


async def test_the_table_sink_prints(capsys: pytest.CaptureFixture[str]) -> None:
    """``publish --dry-run -o table`` shows what it would publish."""
    await TableSink().write(to_lines([metric("m", 1.5, time=10**18, tags=NODE)]))
    assert "fritz" in capsys.readouterr().out
