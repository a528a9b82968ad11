"""A store that keeps nothing: to measure a pipe, and the template for a new store.

A new store is three files; copy these three and change them: this one, ``bridges/null.toml`` and
``tests/sinks/test_null.py``. ``bridges/README.md`` says how it gets its name.
"""

from ccpipe.pipeline import Limits, Records


class NullSink:
    """Takes everything and keeps nothing."""

    limits = Limits()
    """How much is gathered for one ``write()``, unless the recipe's ``[batch]`` says otherwise.

    Choose what suits the store: a database likes small batches often, a file large ones seldom.
    """

    # Options of the recipe's table [sink] are keyword arguments of __init__; their annotations are
    # checked, and a wrong key is fatal before anything starts:
    #
    #     def __init__(self, *, url: str, timeout: Duration = Duration(10)) -> None:
    #
    # A store that holds a connection opens it in __aenter__ and closes it in __aexit__.

    async def write(self, records: Records) -> None:
        """Make `records` safe, or raise: returning means that they may be forgotten upstream.

        ``to_lines(records)`` gives columns, iterating gives messages: take what the store speaks.
        Raise UnavailableError where the same write may succeed later and RejectedError where it
        never will, naming the positions of the bad records where the store knows them. ``run()``
        retries, splits, counts and logs: nothing of that belongs here.
        """
