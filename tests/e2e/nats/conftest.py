"""What tests of this directory share with those of the modules."""

from tests.bus.nats.conftest import sink

__all__ = ["sink"]
