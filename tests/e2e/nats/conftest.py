"""What tests of this folder share with those of the modules."""

from tests.bus.nats.conftest import sink

__all__ = ["sink"]
