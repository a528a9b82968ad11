"""The pipe: a source, translators and a sink, and ``run()``, which connects them.

``run()`` alone owns queueing, batching, bounded memory, back-pressure, retries, splitting of
rejected batches, dead letters, acknowledgement after write, flushing and counting. Therefore a
sink needs only about forty lines, and a publisher and a bridge are the same program with different
parts.
"""

from ccpipe.pipeline.conformance import fault_of
from ccpipe.pipeline.interfaces import (
    Batch,
    DeadLetter,
    DeadLetterSink,
    Limits,
    Records,
    RecordType,
    Rejected,
    Sink,
    Source,
    Translator,
    wait_for_event,
)
from ccpipe.pipeline.message_ids import MessageIds, MessageRange
from ccpipe.pipeline.pipe import run
from ccpipe.pipeline.stages import Stages, check_fit

__all__ = [
    "Batch",
    "DeadLetter",
    "DeadLetterSink",
    "Limits",
    "MessageIds",
    "MessageRange",
    "RecordType",
    "Records",
    "Rejected",
    "Sink",
    "Source",
    "Stages",
    "Translator",
    "check_fit",
    "fault_of",
    "run",
    "wait_for_event",
]
