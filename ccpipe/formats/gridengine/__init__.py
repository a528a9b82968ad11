"""Grid Engine's accounting in every existing variant, as ``Accounting`` records.

>>> payload = b'{"job_number":7,"start_time":0,"end_time":0,"failed":8,"exit_status":0}'
>>> record = read(payload).records[0]
>>> record.job_number, str(record.outcome), record.failure
(7, 'start_failed', 'in prolog')
"""

from ccpipe.formats.gridengine.reader import (
    ParsedChunk,
    RejectedAccountingLine,
    blocks,
    parse,
    read,
    read_stream,
)
from ccpipe.formats.gridengine.record import Accounting, Origin, Outcome, meaning, parse_category
from ccpipe.formats.gridengine.writer import HEADER, encode_classic, encode_jsonl

__all__ = [
    "HEADER",
    "Accounting",
    "Origin",
    "Outcome",
    "ParsedChunk",
    "RejectedAccountingLine",
    "blocks",
    "encode_classic",
    "encode_jsonl",
    "meaning",
    "parse",
    "parse_category",
    "read",
    "read_stream",
]
