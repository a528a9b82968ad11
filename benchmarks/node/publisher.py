"""Cost of a publisher on a node: ``ccpipe publish``, compared with cc-metric-collector.

::

    python -m benchmarks.node.publisher [--collector PROGRAM] [--seconds 40]

Both run at the same time, measure the same things every two seconds, of a node that is filled up
to 300 processes, and publish to one nats-server. The cost of a sample is the processor time of all
threads between two readings, so that the start does not count; memory is resident memory at the
end. The first row of ccpipe is that set of metrics; the second one is everything, as shipped.
"""

import argparse
import contextlib
import json
import os
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from benchmarks.node.agent import filled
from benchmarks.servers import broker, running
from benchmarks.timing import thread_seconds
from ccpipe.registry import entry_points

INTERVAL = 2
SAME: dict[str, dict[str, object]] = {
    "cpu": {"hwthreads": ["*"]},
    "disk": {"exclude": ["loop*", "ram*"]},
    "load": {},
    "memory": {},
    "network": {"exclude": []},
    "numa": {},
}
"""Metrics of both: every hardware thread, disk and interface of a node without accelerators."""
THEIRS = {
    "cpustat": {},
    "diskstat": {},
    "iostat": {},
    "loadavg": {},
    "memstat": {},
    "netstat": {"send_derived_values": True},
    "numastats": {"send_derived_values": True},
}
"""The same in cc-metric-collector, with the rates that ours has."""


class Cost(msgspec.Struct):
    """Cost of one publisher."""

    what: str
    milliseconds: float
    """Processor time of a sample."""
    megabytes: float
    """Resident."""


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description="Measure the cost of a publisher on a node.")
    parser.add_argument("--collector", type=Path, help="the program cc-metric-collector")
    parser.add_argument("--seconds", type=int, default=40)
    options = parser.parse_args()
    print("\n".join(markdown(costs(options.collector, options.seconds))))


def costs(collector: Path | None, seconds: int) -> list[Cost]:
    """Measure all publishers side by side."""
    with filled(), broker() as url, tempfile.TemporaryDirectory() as directory:
        programs = {
            "ccpipe publish, cc-metric-collector's set": ours(Path(directory), url, same=True),
            "ccpipe publish, everything": ours(Path(directory), url, same=False),
        }
        if collector:
            programs["cc-metric-collector"] = theirs(collector, Path(directory), url)
        with contextlib.ExitStack() as stack:
            environment = {**os.environ, "XDG_STATE_HOME": directory}
            pids = {
                name: stack.enter_context(running(command, environment=environment)).pid
                for name, command in programs.items()
            }
            time.sleep(10)  # to start
            before, begin = (
                {name: thread_seconds(pid) for name, pid in pids.items()},
                time.monotonic(),
            )
            time.sleep(seconds)
            samples = (time.monotonic() - begin) / INTERVAL
            return [
                Cost(
                    name,
                    (thread_seconds(pid) - before[name]) / samples * 1e3,
                    resident(pid) / 1e6,
                )
                for name, pid in pids.items()
            ]


def markdown(found: list[Cost]) -> list[str]:
    """Return the table."""
    return [
        "| publisher | ms a sample | MB |",
        "|---|---:|---:|",
        *(f"| {one.what} | {one.milliseconds:.1f} | {one.megabytes:.0f} |" for one in found),
    ]


def ours(directory: Path, url: str, *, same: bool) -> list[str]:
    """Return the command of a publisher without a stream, as the other one has none."""
    config = directory / f"same-{same}.toml"
    lines = [
        'cluster = "bench"',
        f'[bus]\nservers = ["{url}"]\njetstream = false',
        f'[publish]\ninterval = "{INTERVAL}s"',
    ]
    if same:
        lines += ["[publish.sonar]\nsample_interval = 0\nsysinfo_interval = 0"]
        for name in sorted(entry_points("collectors").keys() - {*SAME, "portable"}):
            lines.append(f"[publish.collectors.{name}]\nenabled = false")
        for name, options in SAME.items():
            rows = [f"{key} = {json.dumps(value)}" for key, value in options.items()]
            lines.append("\n".join([f"[publish.collectors.{name}]", *rows]))
    config.write_text("\n".join(lines) + "\n")
    return [sys.executable, "-m", "ccpipe", "publish", "--config", str(config)]


def theirs(program: Path, directory: Path, url: str) -> list[str]:
    """Return the command of cc-metric-collector with a configuration of its own."""
    host, _, port = url.removeprefix("nats://").partition(":")
    router = {"interval_timestamp": False, "num_cache_intervals": 0, "hostname_tag": "hostname"}
    nats = {"type": "nats", "host": host, "port": port, "subject": "hpc-nats", "precision": "s"}
    files = {
        "collectors": THEIRS | {"netstat": THEIRS["netstat"] | {"include_devices": devices()}},
        "receivers": {},
        "router": router,
        "sinks": {"nats": nats},
    }
    for name, content in files.items():
        (directory / f"{name}.json").write_text(json.dumps(content))
    config = directory / "config.json"
    interval = {"interval": f"{INTERVAL}s", "duration": "1s"}
    paths = {f"{name}-file": str(directory / f"{name}.json") for name in files}
    config.write_text(json.dumps({**paths, "main": interval}))
    return [str(program), "-config", str(config)]


def devices() -> list[str]:
    """Return the network's interfaces, all of which ccpipe measures."""
    return [path.name for path in Path("/sys/class/net").iterdir()]


def resident(pid: int) -> int:
    """Return the bytes of a process in memory."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    main()
