"""What tests of this folder share with those of the modules."""

from tests.bus.kafka.conftest import kafka

__all__ = ["kafka"]
