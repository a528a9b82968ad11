"""The line protocol: ``decode`` bytes to ``Lines``, ``encode`` records to bytes.

>>> lines = decode(b"cpu_load,hostname=e1208,type=node value=1.5 1740027951\\n")
>>> lines[0].name, lines[0].value, lines[0].time
('cpu_load', 1.5, 1740027951000000000)
>>> encode(lines)
b'cpu_load,hostname=e1208,type=node value=1.5 1740027951\\n'
"""

from ccpipe.formats.lineprotocol.decoder import Dialect, decode
from ccpipe.formats.lineprotocol.encoder import EncodedLines, encode, encode_rows, to_lines
from ccpipe.formats.lineprotocol.grammar import Rule
from ccpipe.formats.lineprotocol.lines import Lines, RejectedLine
from ccpipe.formats.lineprotocol.precision import Precision
from ccpipe.formats.lineprotocol.series import Series, SeriesTable
from ccpipe.formats.lineprotocol.values import ValueType, is_number

__all__ = [
    "Dialect",
    "EncodedLines",
    "Lines",
    "Precision",
    "RejectedLine",
    "Rule",
    "Series",
    "SeriesTable",
    "ValueType",
    "decode",
    "encode",
    "encode_rows",
    "is_number",
    "to_lines",
]
