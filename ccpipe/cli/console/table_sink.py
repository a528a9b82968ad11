"""A sink that prints messages as a table."""

import sys

from ccpipe.cli.console.message_table import MessageTable
from ccpipe.formats.lineprotocol import Lines
from ccpipe.pipeline import Sink


class TableSink(Sink[Lines]):
    """Prints records on stdout as a table."""

    takes = Lines

    def __init__(self) -> None:
        self._table = MessageTable(sys.stdout)

    async def write(self, records: Lines) -> None:
        print(self._table.render(records), end="", flush=True)
