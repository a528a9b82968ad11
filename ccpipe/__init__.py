"""ccpipe: the monitoring pipe for HPC clusters.

Bytes become records, records become other records, records become bytes, one way::

    source → translators → sink

The names in ``__all__`` are the public interface of the library. They are imported when they are
first used (PEP 562), so that ``import ccpipe`` itself costs nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
    from ccpipe.formats.lineprotocol import Lines, decode, encode
    from ccpipe.formats.lineprotocol.messages import Messages
    from ccpipe.message import Message
    from ccpipe.pipeline import Batch, Sink, Source, Translator, run

__version__ = "0.1.0"

__all__ = [
    "Batch",
    "CcpipeError",
    "ConfigError",
    "CreateError",
    "DataError",
    "DeniedError",
    "EncodeError",
    "Lines",
    "Message",
    "Messages",
    "MissingExtra",
    "MissingInputError",
    "OutputError",
    "RejectedError",
    "Sink",
    "Source",
    "TimedOutError",
    "Translator",
    "UnavailableError",
    "UsageError",
    "decode",
    "encode",
    "run",
]

_HOMES = {
    **dict.fromkeys(("Batch", "Sink", "Source", "Translator", "run"), "ccpipe.pipeline"),
    **dict.fromkeys(("Lines", "decode", "encode"), "ccpipe.formats.lineprotocol"),
    "Message": "ccpipe.message",
    "Messages": "ccpipe.formats.lineprotocol.messages",
}
"""The module that each name is imported from; ``ccpipe.errors`` for all others."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'ccpipe' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES.get(name, "ccpipe.errors")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
