"""What the tests of accounting share with those of the command that shows it."""

from tests.cli.conftest import acct

__all__ = ["acct"]
