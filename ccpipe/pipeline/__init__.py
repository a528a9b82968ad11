"""The pipe: a source, translators and a sink, and ``run()``, which connects them.

``run()`` alone owns queueing, batching, bounded memory, back-pressure, retries, splitting of
rejected batches, dead letters, acknowledgement after write, flushing and counting. Therefore a
sink needs only about forty lines, and a publisher and a bridge are the same program with different
parts.
"""

from ccpipe.pipeline.delivery import TimedSink
from ccpipe.pipeline.interfaces import (
    Batch,
    DeadLetterSink,
    HoldingTranslator,
    Scope,
    SharedSource,
    Sink,
    Source,
    Translator,
)
from ccpipe.pipeline.limits import Limits
from ccpipe.pipeline.pipe import run
from ccpipe.pipeline.stages import Stages, check_fit, fault_of, translator_interface
from ccpipe.pipeline.writing import UnsyncedSink
from ccpipe.process.background import wait_for_event
from ccpipe.records import DeadLetter

__all__ = [
    "Batch",
    "DeadLetter",
    "DeadLetterSink",
    "HoldingTranslator",
    "Limits",
    "Scope",
    "SharedSource",
    "Sink",
    "Source",
    "Stages",
    "TimedSink",
    "Translator",
    "UnsyncedSink",
    "check_fit",
    "fault_of",
    "run",
    "translator_interface",
    "wait_for_event",
]
