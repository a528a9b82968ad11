"""Fixtures shared with the tests of the modules."""

from tests.bus.kafka.conftest import kafka

__all__ = ["kafka"]
