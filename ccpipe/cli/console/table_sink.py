"""A sink that prints messages as a table."""

import sys
from collections.abc import Sequence

from ccpipe.cli.console.message_table import MessageTable
from ccpipe.formats.lineprotocol.messages import Messages
from ccpipe.message import Message
from ccpipe.pipeline import Sink


class TableSink(Sink):
    """Prints records on stdout as a table."""

    takes = Messages

    def __init__(self) -> None:
        """Format for stdout."""
        self._table = MessageTable(sys.stdout)

    async def write(self, records: Sequence[Message]) -> None:
        """Print the records."""
        print(self._table.render(records), end="", flush=True)
