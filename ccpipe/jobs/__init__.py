"""Jobs of any scheduler: one record, one lifecycle, one way to report starts and stops.

A translator fills a ``Job`` from whatever its scheduler writes and adds it to a ``Lifecycle``,
which emits each start and each stop once. An ``Outbox`` keeps what was emitted until it is safe
downstream. Both live in a ``StateStore``, so that neither a crash nor a restart changes the result.
"""

from ccpipe.jobs.events import (
    JobReport,
    ReportedJobs,
    function_of,
    is_complete,
    is_stop_of,
    message,
    read_event,
)
from ccpipe.jobs.job import (
    ENDED,
    EXTENSION,
    PENDING,
    REQUEUED,
    RUNNING,
    Job,
    JobNode,
    Jobs,
    JobUsage,
    RunKey,
    is_final,
)
from ccpipe.jobs.lifecycle import Lifecycle, Outbox, is_same_job

__all__ = [
    "ENDED",
    "EXTENSION",
    "PENDING",
    "REQUEUED",
    "RUNNING",
    "Job",
    "JobNode",
    "JobReport",
    "JobUsage",
    "Jobs",
    "Lifecycle",
    "Outbox",
    "ReportedJobs",
    "RunKey",
    "function_of",
    "is_complete",
    "is_final",
    "is_same_job",
    "is_stop_of",
    "message",
    "read_event",
]
