"""What tests of this folder share with those of the modules."""

from tests.bus.mqtt.conftest import fox, mosquitto

__all__ = ["fox", "mosquitto"]
