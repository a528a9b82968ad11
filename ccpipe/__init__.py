"""ccpipe: the monitoring pipe for HPC clusters.

Bytes become records, records become other records, records become bytes, one way::

    source → translators → sink

The names in ``__all__`` are the public interface of the library. They are imported when they are
first used (PEP 562), so that ``import ccpipe`` itself is fast.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ccpipe.bus.codecs import Codec, Packing
    from ccpipe.bus.codecs.received import Received
    from ccpipe.bus.subjects import Subjects
    from ccpipe.client import BusClient, connect
    from ccpipe.config import Duration
    from ccpipe.errors import (
        CcpipeError,
        ConfigError,
        CreateError,
        DataError,
        DeniedError,
        EncodeError,
        MissingExtra,
        MissingInputError,
        OutputError,
        RejectedError,
        TimedOutError,
        UnavailableError,
        UsageError,
    )
    from ccpipe.formats import sonar
    from ccpipe.formats.lineprotocol import Lines, decode, encode, to_lines
    from ccpipe.job_files import JobFile, read_jobs
    from ccpipe.jobs import Job, JobNode, Jobs
    from ccpipe.message import Message
    from ccpipe.node.sampling.collector import Metric
    from ccpipe.pipeline import Batch, HoldingTranslator, Limits, Sink, Source, Translator, run
    from ccpipe.records import Provenance, RecordList, RejectedRecord

__version__ = "0.1.0"

# In the order of docs/guide/python.md, errors last.
__all__ = [  # noqa: RUF022
    "decode",
    "encode",
    "Lines",
    "Message",
    "to_lines",
    "connect",
    "BusClient",
    "sonar",
    "read_jobs",
    "JobFile",
    "Job",
    "JobNode",
    "Jobs",
    "run",
    "Metric",
    "Source",
    "Batch",
    "Translator",
    "HoldingTranslator",
    "Sink",
    "Limits",
    "Duration",
    "Codec",
    "Received",
    "Provenance",
    "RecordList",
    "RejectedRecord",
    "Subjects",
    "Packing",
    "CcpipeError",
    "UsageError",
    "ConfigError",
    "MissingInputError",
    "CreateError",
    "OutputError",
    "MissingExtra",
    "DataError",
    "EncodeError",
    "RejectedError",
    "UnavailableError",
    "TimedOutError",
    "DeniedError",
]

_MODULES = {
    **dict.fromkeys(("decode", "encode", "Lines", "to_lines"), "ccpipe.formats.lineprotocol"),
    "Message": "ccpipe.message",
    **dict.fromkeys(("connect", "BusClient"), "ccpipe.client"),
    "sonar": "ccpipe.formats.sonar",
    **dict.fromkeys(("read_jobs", "JobFile"), "ccpipe.job_files"),
    **dict.fromkeys(("Job", "JobNode", "Jobs"), "ccpipe.jobs"),
    **dict.fromkeys(
        ("run", "Source", "Batch", "Translator", "HoldingTranslator", "Sink", "Limits"),
        "ccpipe.pipeline",
    ),
    "Duration": "ccpipe.config",
    "Metric": "ccpipe.node.sampling.collector",
    **dict.fromkeys(("Codec", "Packing"), "ccpipe.bus.codecs"),
    "Received": "ccpipe.bus.codecs.received",
    **dict.fromkeys(("Provenance", "RecordList", "RejectedRecord"), "ccpipe.records"),
    "Subjects": "ccpipe.bus.subjects",
}
"""The module that each name is imported from; ``ccpipe.errors`` for all others."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'ccpipe' has no attribute {name!r}")
    module = importlib.import_module(_MODULES.get(name, "ccpipe.errors"))
    value = module if module.__name__.endswith(f".{name}") else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
