"""Fixtures shared with the tests of the modules."""

from tests.bus.nats.conftest import sink

__all__ = ["sink"]
