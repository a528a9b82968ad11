"""A board's sensors, as two real programs printed them."""

from pathlib import Path

import pytest

from ccpipe.config import Duration
from ccpipe.node.collectors.ipmi import METRICS, Ipmi
from tests.node.conftest import reported
from tests.paths import TEST_DATA

DATA = TEST_DATA / "ipmi"
OUTPUTS = ("ipmi-sensors.txt", "ipmitool-c-sdr.txt")


@pytest.mark.parametrize("output", OUTPUTS)
def test_ipmi_gives_same_metrics_with_both_programs(output: str) -> None:
    """Every sensor with a number, by its unit; a sensor that is not scanned has none."""
    messages = list(Ipmi(command=["cat", str(DATA / output)]).collect(1))
    sent = {(m.name, type(m.value), m.tags["stype"]) for m in messages}
    assert sent == {(row.name, row.kind, row.stype) for row in METRICS}
    assert reported(messages) == {
        ("ipmi_temperature", "CPU1 Temp"): 47,
        ("ipmi_temperature", "CPU2 Temp"): 52,
        ("ipmi_temperature", "Inlet Temp"): 22,
        ("ipmi_fan", "FAN1"): 6600,
        ("ipmi_fan", "FAN2"): 0,
        ("ipmi_voltage", "12V"): 12.18,
        ("ipmi_temperature", "P1-DIMMA1 TEMP"): 38,
        ("ipmi_power", "PSU1 Power"): 388,
        ("ipmi_current", "PSU1 Current"): 1.8,
        ("ipmi_percent", "Fan Duty"): 40,
    }


def test_ipmi_numbers_sensors_of_same_name() -> None:
    """Some boards name each processor's sensor ``Temp``."""
    printed = "Temp,40,degrees C,ok\\nTemp,50,degrees C,ok\\n"
    assert reported(Ipmi(command=["printf", printed]).collect(1)) == {
        ("ipmi_temperature", "Temp"): 40,
        ("ipmi_temperature", "Temp#2"): 50,
    }


def test_ipmi_converts_fahrenheit_to_celsius() -> None:
    values = reported(Ipmi(command=["printf", "Board,212,degrees F,ok\\n"]).collect(1))
    assert values["ipmi_temperature", "Board"] == pytest.approx(100)


def test_ipmi_finds_columns_by_name() -> None:
    """FreeIPMI has one more with ``--output-sensor-state``."""
    printed = "ID,Name,Type,State,Reading,Units,Event\\n4,Vcore,Voltage,Nominal,1.20,V,'OK'\\n"
    assert reported(Ipmi(command=["printf", printed]).collect(1)) == {
        ("ipmi_voltage", "Vcore"): 1.2
    }


def test_ipmi_excludes_sensor_by_pattern() -> None:
    collector = Ipmi(command=["cat", str(DATA / OUTPUTS[0])], exclude=["CPU*", "FAN?"])
    names = {sensor for _, sensor in reported(collector.collect(1))}
    assert "Inlet Temp" in names
    assert not {name for name in names if name.startswith(("CPU", "FAN"))}


@pytest.mark.parametrize(
    ("printed", "bad"),
    [
        ("Get SDR failed\\nFan,5,RPM,ok\\n", "'Get SDR failed'"),
        ("ID,Name,Type,Reading,Units\\n4,Psu\\n5,Fan,Fan,5,RPM\\n", "'Psu'"),
    ],
)
def test_ipmi_skips_bad_line(printed: str, bad: str, caplog: pytest.LogCaptureFixture) -> None:
    collector = Ipmi(command=["printf", printed])
    for _ in range(2):
        assert reported(collector.collect(1)) == {("ipmi_fan", "Fan"): 5}
    [record] = caplog.records
    assert record.message == f"collector ipmi: {bad} is not a sensor"


def test_ipmi_runs_first_installed_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FreeIPMI's, else ipmitool; without both the sampler disables the collector."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="neither ipmi-sensors nor ipmitool"):
        list(Ipmi().collect(1))
    for program, value in (("ipmitool", 1), ("ipmi-sensors", 2)):
        path = tmp_path / program
        path.write_text(f"#!/bin/sh\necho Fan,{value},RPM,ok\n")
        path.chmod(0o755)
        assert reported(Ipmi().collect(1)) == {("ipmi_fan", "Fan"): value}


def test_ipmi_raises_error_with_output_of_failed_program() -> None:
    """Such as one without a controller, or one that hangs."""
    with pytest.raises(ChildProcessError, match="ended with 1: no device"):
        list(Ipmi(command=["sh", "-c", "echo no device >&2; exit 1"]).collect(1))
    with pytest.raises(ChildProcessError, match=r"took more than 0\.1 s"):
        list(Ipmi(command=["sleep", "600"], timeout=Duration(0.1)).collect(1))
