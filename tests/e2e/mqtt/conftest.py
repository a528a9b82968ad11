"""What tests of this directory share with those of the modules."""

from tests.bus.mqtt.conftest import fox, mosquitto, source

__all__ = ["fox", "mosquitto", "source"]
