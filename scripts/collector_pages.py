"""Write ``docs/collectors/``, a page for each collector, from the collectors themselves.

::

    python scripts/collector_pages.py docs/collectors
"""

import importlib
import inspect
import json
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from importlib import metadata
from pathlib import Path
from typing import Any

from ccpipe.node.sampling.collector import Metric

INDEX = """\
# Collectors

The metrics of each collector. These pages are generated from the collectors
(`python scripts/collector_pages.py docs/collectors`) and a test checks that they are current.

Names and units follow the ClusterCockpit specification if it has the metric, else
cc-metric-collector. Every metric has the tags `cluster`, `hostname` and `type`, and where a table
has `stype=…` also `stype` and `stype-id`. Collectors without data on a node are named
in one log line and polled again every minute. A failing collector does not affect the others, and a
bad reading (a file, a line, a sensor) only its own metrics: it is left out, logged once, and
counted in `ccpipe_failed_reads_total`.

Set options under `[publish.collectors.<collector>]` in `ccpipe.toml`. Every collector also takes
`enabled = false`, which disables it, and `interval = "60s"`, which overrides the interval. Three
are disabled unless they have `enabled = true`: [lustre_jobstats](storage/lustre_jobstats.md),
[topprocs](topprocs.md) and, on a system with `/proc`, [portable](portable.md).

| collector | what it reports | metrics |
|---|---|---|
"""

_CGROUP = "/sys/fs/cgroup/…/job_*"
SOURCES: Mapping[str, Mapping[str, str]] = {
    "amd_gpu": {
        "rocm_gfx_util": "/sys/class/drm/card*/device/gpu_busy_percent",
        "rocm_umc_util": "/sys/class/drm/card*/device/mem_busy_percent",
        **dict.fromkeys(
            (
                "rocm_mm_util",
                "rocm_temp_vr*",
                "rocm_temp_hbm",
                "rocm_soc_clock",
                "rocm_[vd]?_clock",
            ),
            "/sys/class/drm/card*/device/gpu_metrics",
        ),
        "rocm_mem_*": "/sys/class/drm/card*/device/mem_info_vram_*",
        "rocm_ecc_*": "/sys/class/drm/card*/device/ras/*_err_count",
        "*": "/sys/class/drm/card*/device/hwmon/hwmon*/*",
    },
    "beegfs_meta": {"*": "beegfs-ctl --clientstats --nodetype=meta"},
    "beegfs_storage": {"*": "beegfs-ctl --clientstats --nodetype=storage"},
    "clock": {"*": "/sys/devices/system/cpu/cpu*/cpufreq/scaling_cur_freq or /proc/cpuinfo"},
    "command": {},
    "cpu": {"*": "/proc/stat"},
    "cpu_limits": {
        "*_power_limit": "/sys/class/powercap/intel-rapl:*/constraint_0_power_limit_uw",
        "min_*": "/sys/devices/system/cpu/cpufreq/policy*/scaling_min_freq",
        "*": "/sys/devices/system/cpu/cpufreq/policy*/scaling_max_freq",
    },
    "disk": {"io_*": "/proc/diskstats", "*": "/proc/self/mounts and statvfs(2)"},
    "gpfs": {"*": "mmpmon: fs_io_s"},
    "infiniband": {"*": "/sys/class/infiniband/*/ports/*/counters/*"},
    "ipmi": {"*": "ipmi-sensors or ipmitool"},
    "likwid": {"*": "liblikwid"},
    "load": {"*": "/proc/loadavg"},
    "lustre": {"*": "/sys/kernel/debug/lustre/llite/*/stats or /proc/fs/lustre/llite/*/stats"},
    "lustre_jobstats": {
        "*": "/proc/fs/lustre/obdfilter/*/job_stats and /proc/fs/lustre/mdt/*/job_stats"
    },
    "memory": {"*": "/proc/meminfo and, of domains, /sys/devices/system/node/node*/meminfo"},
    "network": {"*": "/proc/net/dev"},
    "nfs": {"nfsio_*": "/proc/self/mountstats", "*": "/proc/net/rpc/nfs"},
    "numa": {"*": "/sys/devices/system/node/node*/numastat"},
    "nvidia": {"*": "NVML"},
    "perf": {
        "mem_bw": "perf_event_open(2) of /sys/bus/event_source/devices/*",
        "flops_*": "perf_event_open(2) after /proc/cpuinfo",
        "*": "perf_event_open(2)",
    },
    "portable": {"*": "psutil"},
    "pressure": {
        "psi_cpu_*": "/proc/pressure/cpu",
        "psi_memory_*": "/proc/pressure/memory",
        "psi_io_*": "/proc/pressure/io",
        "psi_irq_*": "/proc/pressure/irq",
    },
    "processes": {
        "procs_*": "/proc/[0-9]*/stat",
        "threads_total": "/proc/[0-9]*/stat",
        "*": "/proc/stat",
    },
    "rapl": {"*": "/sys/class/powercap/intel-rapl:*/energy_uj"},
    "schedstat": {"*": "/proc/schedstat"},
    "self": {
        "self_mem_used": "/proc/self/status",
        "self_threads": "/proc/self/status",
        "*": "getrusage(2)",
    },
    "slurm_cgroup": {
        "job_mem_used": f"{_CGROUP}/memory.current or memory.usage_in_bytes",
        "job_max_mem_used": f"{_CGROUP}/memory.peak or memory.max_usage_in_bytes",
        "job_mem_limit": f"{_CGROUP}/memory.max or memory.limit_in_bytes",
        "job_*_cpu": f"{_CGROUP}/cpu.stat or cpuacct.stat",
        "job_*_bytes": f"{_CGROUP}/io.stat or blkio.throttle.io_service_bytes",
        "job_psi_*": f"{_CGROUP}/*.pressure",
    },
    "smartmon": {"*": "smartctl --all"},
    "temperature": {
        "max_*": "/sys/class/hwmon/hwmon*/temp*_max",
        "crit_*": "/sys/class/hwmon/hwmon*/temp*_crit",
        "*": "/sys/class/hwmon/hwmon*/temp*_input",
    },
    "topprocs": {"*": "/proc/[0-9]*/stat"},
}
"""Where each collector reads its metrics: by a pattern of their names, the first that fits."""


def pages() -> dict[str, str]:
    """Return each page by its path, in directories as its collector is."""
    entries = sorted(metadata.entry_points(group="ccpipe.collectors"))
    own = [entry for entry in entries if entry.module.startswith("ccpipe.")]
    found = {path_of(entry): "\n".join(_page(entry)) for entry in own}
    return {"README.md": INDEX + "".join(_row(entry) for entry in own), **found}


def path_of(entry: metadata.EntryPoint) -> str:
    """Return where the page of a collector is, below the directory of all."""
    directories = entry.module.split(".")[3:-1]  # those below ccpipe.node.collectors
    return "/".join([*directories, f"{entry.name}.md"])


def _row(entry: metadata.EntryPoint) -> str:
    module = importlib.import_module(entry.module)
    what = " ".join(_prose(module).partition("\n\n")[0].split())
    return f"| [{entry.name}]({path_of(entry)}) | {what} | {len(module.METRICS) or 'any'} |\n"


def _page(entry: metadata.EntryPoint) -> Iterator[str]:
    module, collector = importlib.import_module(entry.module), entry.load()
    yield f"# {entry.name}\n"
    yield _prose(module) + "\n"
    if interval := getattr(collector, "INTERVAL", None):
        yield f"The default interval is {interval:g} s.\n"
    yield f"## Options\n\n`[publish.collectors.{entry.name}]`\n"
    yield "| option | default | meaning |\n|---|---|---|"
    meanings = _meanings(collector)
    for name, parameter in inspect.signature(collector).parameters.items():
        if name in meanings:  # others are given by ccpipe itself
            yield f"| `{name}` | `{json.dumps(parameter.default)}` | {meanings[name]} |"
    if module.METRICS:
        yield "\n## Metrics\n"
        yield from _table(entry.name, module.METRICS)
    yield ""


def _table(collector: str, metrics: Sequence[Metric]) -> Iterator[str]:
    """Yield the lines of a table; a source of all metrics and the names of families apart."""
    sources = {source(collector, row.name): None for row in metrics}
    if is_same := len(sources) == 1:
        yield f"Source: `{next(iter(sources))}`.\n"
    titles = ["metric", "unit", "value", "of", "meaning", *([] if is_same else ["source"])]
    yield _line(titles)
    yield "|" + "---|" * len(titles)
    families = by_family(metrics)
    for name, rows in families.items():
        row = rows[0]
        of = ", ".join(row.types) + (f", stype={row.stype}" if row.stype else "")
        of += f", also stype={row.part}" if row.part else ""
        cells = [f"`{name}`", row.unit, row.kind.__name__, of, row.meaning]
        yield _line([*cells, *([] if is_same else [f"`{source(collector, row.name)}`"])])
    for name, rows in families.items():
        if name != rows[0].name:
            yield f"\n`{name}`: {', '.join(f'`{row.name}`' for row in rows)}."


def by_family(metrics: Iterable[Metric]) -> dict[str, list[Metric]]:
    """Return the rows by their family, or by their own names if they have none."""
    found: dict[str, list[Metric]] = {}
    for row in metrics:
        found.setdefault(row.family or row.name, []).append(row)
    return found


def _line(cells: Iterable[str]) -> str:
    return "".join(f"| {cell} " for cell in cells) + "|"


def source(collector: str, metric: str) -> str:
    """Return where a metric is read; raises LookupError if it is not in the table."""
    for pattern, place in SOURCES[collector].items():
        if fnmatchcase(metric, pattern):
            return place
    raise LookupError(f"{collector}: {metric} is not in SOURCES")


def _prose(thing: Any) -> str:
    return (inspect.getdoc(thing) or "").replace("``", "`")


def _meanings(collector: type[Any]) -> dict[str, str]:
    """Read the options' meanings off the *Parameters* of a class or its constructor."""
    prose = f"{_prose(collector)}\n\n{_prose(collector.__init__)}"
    _, _, parameters = prose.partition("----------\n")
    blocks = textwrap.dedent(parameters).replace("\n    ", "\t").splitlines()
    return {name: " ".join(text) for name, *text in (block.split("\t") for block in blocks)}


def main(directory: Path) -> None:
    """Write the pages, and remove pages of collectors that no longer exist."""
    wanted = pages()
    for path in directory.rglob("*.md"):
        if path.relative_to(directory).as_posix() not in wanted:
            path.unlink()
    for name, text in wanted.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
