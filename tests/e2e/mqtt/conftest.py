"""Fixtures shared with the tests of the modules."""

from tests.bus.mqtt.conftest import fox, mosquitto, source

__all__ = ["fox", "mosquitto", "source"]
