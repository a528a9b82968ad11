"""The source, the sink and the collector."""

import asyncio
import socket
from pathlib import Path

import pytest

import ccpipe
from ccpipe_pdu.collector import HwmonPower
from ccpipe_pdu.sink import DailyCsvSink
from ccpipe_pdu.source import PduSource
from ccpipe_pdu.translator import PduToCc


def free_port() -> int:
    """Return a port on which nothing receives datagrams."""
    with socket.socket(type=socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def test_datagram_becomes_row_of_its_day(tmp_path: Path) -> None:
    """Through source, translator and sink."""
    outlets, power, port = tmp_path / "outlets.toml", tmp_path / "power", free_port()
    outlets.write_text('"rack17/A/12" = "f0101"\n')
    power.mkdir()
    source = PduSource(port=port)
    translator = PduToCc(outlets=outlets, cluster="fritz")
    pipe = asyncio.create_task(
        ccpipe.run(source, DailyCsvSink(directory=power), translators=[translator])
    )
    with socket.socket(type=socket.SOCK_DGRAM) as pdu:
        while not list(power.iterdir()):
            pdu.sendto(b"rack17;A;12;231.5;1763596800\n", ("127.0.0.1", port))
            await asyncio.sleep(0.05)
    source.stop()
    await pipe
    [file] = power.iterdir()
    assert file.name == "2025-11-20.csv"
    expected = "f0101,node_outlet_power,A12,231.5,2025-11-20T00:00:00+00:00"
    assert set(file.read_text().splitlines()) == {expected}


async def test_sink_rejects_text(tmp_path: Path) -> None:
    """And names the rows, so that the others are stored."""
    lines = ccpipe.decode(b'a,type=node value=1 1\nb,type=node event="drain" 1\n')
    with pytest.raises(ccpipe.RejectedError) as raised:
        await DailyCsvSink(directory=tmp_path).write(lines)
    assert list(raised.value.indices) == [1]


def test_collector_reads_sensors(tmp_path: Path) -> None:
    """In watts."""
    (tmp_path / "hwmon3").mkdir()
    (tmp_path / "hwmon3/power1_average").write_text("212000000\n")
    [message] = HwmonPower(directory=tmp_path).collect(1)
    assert (message.value, message.tags["stype-id"]) == (212.0, "hwmon3.power1")


def test_collector_reports_node_without_sensors(tmp_path: Path) -> None:
    """The publisher disables it there."""
    with pytest.raises(FileNotFoundError, match="no sensor of power"):
        list(HwmonPower(directory=tmp_path).collect(1))
