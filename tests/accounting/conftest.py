"""Fixtures shared with the tests of ``ccpipe acct``."""

from tests.cli.conftest import acct

__all__ = ["acct"]
