"""Discards everything: to measure a pipe, and as a template for a new store.

A new store is three files. Copy and change these: this one, ``bridges/null.toml`` and
``tests/sinks/test_null.py``. ``bridges/README.md`` explains how to register its name.
"""

from ccpipe.formats.lineprotocol import Lines
from ccpipe.pipeline import Limits, Sink


class NullSink(Sink[Lines]):
    """Discards everything."""

    takes = Lines

    limits = Limits()
    """Size of the batches for ``write()``, unless the recipe's ``[batch]`` sets it.

    Choose what suits the store: frequent small batches for a database, rare large ones for a file.
    """

    # Options of the recipe's table [sink] are keyword arguments of __init__. Their types are
    # checked before anything starts, and an unknown key is an error:
    #
    #     def __init__(self, *, url: str, timeout: Duration = Duration(10)) -> None:
    #
    # Open a connection in __aenter__ and close it in __aexit__.

    async def write(self, records: Lines) -> None:
        """Store `records`, or raise: once this returns, they are acknowledged upstream.

        ``records`` returns columns, iterating yields messages: use what suits the store.
        Raise UnavailableError if the same write may succeed later, and RejectedError if it never
        will, with the indices of the bad records if the store names them. ``run()`` retries,
        splits, counts and logs; a sink does not.
        """
