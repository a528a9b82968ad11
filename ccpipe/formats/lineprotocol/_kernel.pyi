# What ``_kernel.pyx`` offers.

from array import array
from collections.abc import Callable, Iterable

from ccpipe.formats.lineprotocol.lines import Lines
from ccpipe.formats.lineprotocol.series import Series, SeriesTable
from ccpipe.formats.lineprotocol.texts import Texts
from ccpipe.message import Message

def blank(kind: type[Lines], texts: type[Texts], payload: bytes, table: SeriesTable) -> Lines: ...

class Scanner:
    units: int
    bare_points: bool
    def __init__(self, influx: bool) -> None: ...
    def read(self, lines: Lines, position: int, unit: int) -> int: ...

def encode_lines(lines: Lines, fields: dict[int, bytes], unit: int) -> bytes: ...
def encode_messages(
    messages: Iterable[Message], unit: int, in_python: Callable[[Message], bytes]
) -> bytes: ...
def passthrough(lines: Lines) -> bytes: ...
def write_request(lines: Lines, labels_of: Callable[[Series, str], bytes]) -> bytes: ...
def shifted(
    column: array[int], by: int, types: array[int] | None = None, only: int = 0
) -> array[int]: ...
