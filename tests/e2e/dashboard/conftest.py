"""A dashboard and a browser, as for the tests of its modules."""

from tests.dashboard.conftest import live, page

__all__ = ["live", "page"]
