"""What tests of this directory share with those of the modules."""

from tests.bus.kafka.conftest import kafka

__all__ = ["kafka"]
