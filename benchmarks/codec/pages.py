"""Speed of reading an exporter's page, compared with prometheus_client's parser in one run.

::

    python -m benchmarks.codec.pages [PAGE]

Without a file the page is like that of node_exporter on a node of 64 hardware threads.
"""

import sys
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from benchmarks.timing import rates
from ccpipe.formats.exposition import KnownSeries, PageDecoder

TAGS = {"cluster": "fritz", "hostname": "f0101", "type": "node"}
TIME = 1_740_027_951 * 10**9
MODES = ("idle", "iowait", "irq", "nice", "softirq", "steal", "system", "user")


def page(cpus: int = 64, others: int = 1800) -> bytes:
    """Return a page of counters by hardware thread, and gauges with three labels."""
    lines = ["# HELP node_cpu_seconds_total Seconds the CPUs spent in each mode."]
    lines += ["# TYPE node_cpu_seconds_total counter"]
    lines += [
        f'node_cpu_seconds_total{{cpu="{cpu}",mode="{mode}"}} {cpu * 1000 + place}.25'
        for cpu in range(cpus)
        for place, mode in enumerate(MODES)
    ]
    for number in range(others):
        if not number % 10:
            name = f"node_thing_{number // 10}"
            lines += [f"# HELP {name} A number of things.", f"# TYPE {name} gauge"]
        device = f'device="sd{number % 10}",fstype="xfs",mountpoint="/data/{number % 10}"'
        lines.append(f"{name}{{{device}}} {number * 1.5e7:e}")
    return "".join(f"{line}\n" for line in lines).encode()


def main() -> None:
    """Print one line for each way of reading the page."""
    data = Path(sys.argv[1]).read_bytes() if len(sys.argv) > 1 else page()
    text = data.decode()
    decoder = PageDecoder(KnownSeries(), TAGS)
    samples = decoder.decode(data, TIME).samples
    found = rates(
        {
            "ccpipe": lambda: decoder.decode(data, TIME),
            "ccpipe, each series new": lambda: PageDecoder(KnownSeries(), TAGS).decode(data, TIME),
            "prometheus_client": lambda: [
                sample
                for family in text_string_to_metric_families(text)
                for sample in family.samples
            ],
        },
        samples,
        seconds=2,
    )
    base = found["prometheus_client"]
    print(f"{len(data)} bytes, {samples} samples")
    for name, speed in found.items():
        print(f"{name:24} {speed:9,.0f} samples per CPU second {speed / base:5.1f} x")


if __name__ == "__main__":
    main()
