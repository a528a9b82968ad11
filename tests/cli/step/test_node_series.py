"""Samples of the whole node."""

import time
from pathlib import Path

from ccpipe.cli.step.node_series import NodeSeries

LUSTRE = (
    "snapshot_time 1.0 secs.nsecs\n"
    "read_bytes {0} samples [bytes] 1 9 {1}\nwrite_bytes 2 samples [bytes] 1 9 {1}\n"
)


def write(root: Path, step: int) -> None:
    port = "sys/class/infiniband/mlx5_0/ports/1/counters"
    files = {
        "sys/class/powercap/intel-rapl:0/name": "package-0",
        "sys/class/powercap/intel-rapl:0/energy_uj": f"{step * 50_000_000}",
        "sys/class/powercap/intel-rapl:0/max_energy_range_uj": "262143328850",
        "proc/fs/lustre/llite/scratch-ff/stats": LUSTRE.format(5 + step, 2**20 * (10 + step)),
        f"{port}/port_rcv_data": f"{2**18 * step}",
        f"{port}/port_xmit_data": "0",
        f"{port}/port_rcv_packets": f"{7 * step}",
        f"{port}/port_xmit_packets": "3",
    }
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content + "\n")


def test_node_samples_have_differences_of_counters(tmp_path: Path) -> None:
    series = NodeSeries(root=str(tmp_path))
    write(tmp_path, 0)
    begun = time.monotonic()
    assert series.power() is None  # no rate yet
    inner = time.monotonic()
    series.energy_used()
    series.filesystem()
    assert series.network() == {"PacketsIn": 0, "PacketsOut": 0, "InMB": 0, "OutMB": 0}
    time.sleep(0.2)
    write(tmp_path, 1)
    min_seconds = time.monotonic() - inner
    power, energy = series.power(), series.energy_used()
    max_seconds = time.monotonic() - begun
    assert power is not None
    assert energy is not None
    assert 50 / max_seconds - 1 <= (power["Power"] or 0) <= 50 / min_seconds + 1
    assert energy.joules == 50
    assert series.filesystem() == {"Reads": 1, "ReadMB": 1.0, "Writes": 0, "WriteMB": 1.0}
    assert series.network() == {"PacketsIn": 7, "PacketsOut": 0, "InMB": 1.0, "OutMB": 0.0}


def test_node_series_without_counters_are_left_out(tmp_path: Path) -> None:
    series = NodeSeries(root=str(tmp_path))
    assert series.power() is None
    assert series.energy_used() is None
    assert series.filesystem() is None
    assert series.network() is None
