"""Temperatures: ``/sys/class/hwmon``."""

from ccpipe.node.collectors.temperature import Temperature
from tests.node.conftest import Root, reported


def test_each_chip_is_a_series_of_its_own(root: Root) -> None:
    """Two sockets and two disks with the same driver and labels do not collapse into one."""
    root.show("hwmon/first")
    values = reported(Temperature(exclude=[], root=str(root)).collect(0))
    assert values == {
        ("temperature", "0/Package id 0"): 55,
        ("temperature", "0/Core 0"): 50.5,
        ("temperature", "1/Package id 1"): 61,
        ("temperature", "1/Core 0"): 49,
        ("temperature", "nvme-nvme0/Composite"): 38.85,
        ("temperature", "nvme-nvme1/Composite"): -5.85,
        ("temperature", "acpitz-hwmon10/temp1"): 27.8,
    }


def test_a_sensor_that_cannot_be_read_costs_itself_only(root: Root) -> None:
    """A disk that sleeps, or a sensor that vanished since the folder was read."""
    root.show("hwmon/first")
    sensor = root.path / "sys/class/hwmon/hwmon2/temp1_input"
    sensor.unlink()
    sensor.mkdir()  # reading it fails, as a sensor's that says EIO
    sensors = {sensor for _, sensor in reported(Temperature(root=str(root)).collect(0))}
    assert "nvme-nvme0/Composite" not in sensors
    assert "nvme-nvme1/Composite" in sensors
