"""The plug: a source, translators and a sink, and ``run()``, which joins them.

``run()`` alone owns queueing, batching, bounded memory, back-pressure, retry, splitting of a
rejected batch, dead letters, acknowledgement after write, flushing and counting. That is why a
store is forty lines, and why a publisher and a bridge are the same program with other parts.
"""

from ccpipe.pipeline.pipe import run
from ccpipe.pipeline.plug import (
    Batch,
    DeadLetter,
    DeadLetterSink,
    Holding,
    Limits,
    Records,
    Remembering,
    Sink,
    Source,
    Translator,
    check_fit,
    join,
    wait_for_event,
)

__all__ = [
    "Batch",
    "DeadLetter",
    "DeadLetterSink",
    "Holding",
    "Limits",
    "Records",
    "Remembering",
    "Sink",
    "Source",
    "Translator",
    "check_fit",
    "join",
    "run",
    "wait_for_event",
]
