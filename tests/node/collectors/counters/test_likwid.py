"""LIKWID's groups: the real library where it can count, else a library with its interface.

No machine of ours has the counters that LIKWID needs. What stands in for its library is compiled
with the real ``likwid.h``, which holds it to LIKWID's functions and their types.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ccpipe.config import Duration
from ccpipe.errors import ConfigError
from ccpipe.node.collectors.counters.likwid import METRICS, Likwid
from ccpipe.node.linux import likwid_reader
from tests.conftest import program
from tests.node.conftest import checked

STAND_IN = r"""
#include <likwid.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Group 0 is MEM_DP, group 1 FLOPS_SP; every reading is a multiple of the hardware thread + 1. */
static const char* names[2][4] = {
    {"CPI", "DP [MFLOP/s]", "Memory bandwidth [MBytes/s]", "L3 [MBytes/s]"},
    {"CPI", "SP [MFLOP/s]", "Runtime (RDTSC) [s]", "Clock [MHz]"}};
static int threads = 0;

void HPMmode(int mode) { if (mode != ACCESSMODE_DIRECT) exit(3); }
int topology_init(void) { puts("noise on stdout"); return 0; }
int numa_init(void) { return 0; }
void affinity_init() {}
void timer_init(void) {}
int perfmon_init(int count, const int* cpus) { threads = count; return cpus[0]; }
int perfmon_addEventSet(const char* name)
{
    return strcmp(name, "MEM_DP") == 0 ? 0 : strcmp(name, "FLOPS_SP") == 0 ? 1 : -22;
}
int perfmon_getNumberOfMetrics(int group) { return 4; }
char* perfmon_getMetricName(int group, int metric) { return strdup(names[group][metric]); }
int perfmon_setupCounters(int group) { return 0; }
int perfmon_startCounters(void) { return 0; }
int perfmon_stopCounters(void) { return 0; }
void perfmon_finalize(void) {}
double perfmon_getLastMetric(int group, int metric, int thread)
{
    if (metric == 2)  /* what is of a socket is with its first hardware thread */
        return thread % 2 ? 0.0 : 1000.0 * (thread + 1);
    if (metric == 3)
        return thread ? NAN : 7.0;
    return metric == 0 ? 0.5 : 100.0 * (thread + 1);
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    program("likwid-perfctr", "likwid")  # with it comes likwid.h
    directory = tmp_path_factory.mktemp("likwid")
    (directory / "likwid.c").write_text(STAND_IN)
    made = directory / "liblikwid.so"
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-o", made, directory / "likwid.c"], check=True, timeout=60
    )
    return str(made)


@pytest.fixture
def root(tmp_path: Path) -> str:
    cpus = tmp_path / "sys/devices/system/cpu"
    for number in range(4):
        (cpus / f"cpu{number}/topology").mkdir(parents=True)
        (cpus / f"cpu{number}/topology/physical_package_id").write_text(f"{number // 2}\n")
    (cpus / "online").write_text("0-3\n")
    return str(tmp_path)


def begin(collector: Likwid) -> Likwid:
    assert list(collector.collect(0)) == []
    while collector._reader is None or not collector._reader.counts():
        time.sleep(0.01)
    return collector


def values(collector: Likwid) -> dict[tuple[str, str, str], float]:
    messages = [checked(message) for message in collector.collect(0)]
    assert {message.name for message in messages} <= {row.name for row in METRICS}
    return {(m.name, m.tags["type"], m.tags.get("type-id", "")): float(m.value) for m in messages}


def test_likwid_reports_metrics_of_perf(library: str, root: str) -> None:
    """Flops in one, not in millions; of a node the sum; the memory's traffic by socket."""
    collector = begin(Likwid(groups=["MEM_DP"], library=library, access="direct", root=root))
    expected = {("ipc", "hwthread", str(n)): 2.0 for n in range(4)}
    expected |= {
        ("flops_dp", "node", ""): 1e9,
        ("mem_bw", "socket", "0"): 1000.0,
        ("mem_bw", "socket", "1"): 3000.0,
        ("mem_bw", "node", ""): 4000.0,
    }
    assert values(collector) == expected
    assert values(collector) == expected
    collector.end()


def test_likwid_measures_groups_in_turn(library: str, root: str) -> None:
    """Both precisions together, once both are known; each hardware thread if configured."""
    collector = Likwid(
        groups=["MEM_DP", "FLOPS_SP"], library=library, hwthreads=["flops_any"], root=root
    )
    begin(collector)
    first, second, third = values(collector), values(collector), values(collector)
    assert "flops_any" not in {name for name, *_ in first}
    assert second["flops_sp", "node", ""] == 1e9
    assert "mem_bw" not in {name for name, *_ in second}
    for sample in (second, third):
        assert sample["flops_any", "node", ""] == 3e9
        assert sample["flops_any", "hwthread", "3"] == 1.2e9
    collector.end()


def test_likwid_reports_further_metrics_by_configured_name(library: str, root: str) -> None:
    """By hwthread, as in LIKWID; a value that is not a number is omitted."""
    own = {"L3 [MBytes/s]": "l3_bw"}
    collector = Likwid(groups=["MEM_DP"], metrics=own, library=library, hwthreads=[], root=root)
    begin(collector)
    found = {(m.name, m.tags.get("type-id")): m.value for m in collector.collect(0)}
    assert {key: value for key, value in found.items() if key[0] == "l3_bw"} == {
        ("l3_bw", "0"): 7.0
    }
    collector.end()


def test_likwid_names_unsupported_group_library_or_access(library: str, root: str) -> None:
    """Each disables the collector, with a reason."""
    for options, reason in (
        ({"groups": ["L9"], "library": library}, "no group 'L9'"),
        ({"groups": ["MEM_DP"], "library": "libabsent.so"}, "libabsent.so: cannot open"),
        ({"groups": ["MEM_DP"], "library": library, "access": "perf_event"}, "has ended"),
    ):
        with pytest.raises(PermissionError, match=f"LIKWID cannot count here: .*{reason}"):
            begin(Likwid(root=root, **options))  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError, match="no groups are configured"):
        list(Likwid(library=library, root=root).collect(0))
    with pytest.raises(ConfigError, match="not a group of LIKWID: 'A,B'"):
        Likwid(groups=["A,B"])


def test_likwid_loses_one_sample_if_reader_is_killed(library: str, root: str) -> None:
    collector = begin(Likwid(groups=["MEM_DP"], library=library, root=root))
    assert collector._reader is not None
    os.kill(collector._reader._process.pid, signal.SIGKILL)
    with pytest.raises(BrokenPipeError):
        list(collector.collect(0))
    assert values(begin(collector)) != {}
    collector.end()


def test_likwid_counts_or_reports_error_with_real_library() -> None:
    """Without access to the counters the library exits with one line, which becomes the error."""
    program("likwid-perfctr", "likwid")
    collector = Likwid(groups=["CLOCK"], library="liblikwid.so.5", timeout=Duration(5))
    reason = ""
    try:
        begin(collector)
    except PermissionError as error:
        reason = str(error)
    if reason:
        assert reason.startswith("[Errno 13] LIKWID cannot count here: ")
        assert "\n" not in reason
    else:
        assert "ipc" in {name for name, *_ in values(collector)}
    collector.end()


def run(*arguments: str, lines: int) -> tuple[list[dict[str, list[float | None]]], str, int]:
    done = subprocess.run(
        [sys.executable, str(Path(likwid_reader.__file__)), *arguments],
        input="\n" * lines, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr, done.returncode


def test_reader_answers_each_line_in_json(library: str) -> None:
    """Its output is JSON alone, whatever the library prints; NaN is null."""
    (first, *samples), said, code = run(library, "direct", "0,1", "MEM_DP", lines=2)
    assert (first, code) == ({}, 0), said
    assert (
        samples
        == [
            {
                "CPI": [0.5, 0.5],
                "DP [MFLOP/s]": [100.0, 200.0],
                "Memory bandwidth [MBytes/s]": [1000.0, 0.0],
                "L3 [MBytes/s]": [7.0, None],
            }
        ]
        * 2
    )


def test_reader_measures_groups_in_turn(library: str) -> None:
    (_, *samples), _, _ = run(library, "", "0", "MEM_DP,FLOPS_SP", lines=4)
    assert ["DP [MFLOP/s]" in sample for sample in samples] == [True, False, True, False]


@pytest.mark.parametrize(
    ("hwthreads", "group", "reason"),
    [("7", "MEM_DP", "perfmon_init failed"), ("0", "NONE", "this processor has no group 'NONE'")],
)
def test_reader_exits_with_reason_if_it_cannot_count(
    library: str, hwthreads: str, group: str, reason: str
) -> None:
    samples, said, code = run(library, "", hwthreads, group, lines=1)
    assert (samples, code) == ([], 1)
    assert said.splitlines()[-1] == reason


def test_reader_names_missing_library(tmp_path: Path) -> None:
    _, said, code = run(str(tmp_path / "liblikwid.so"), "", "0", "MEM_DP", lines=0)
    assert code == 1
    assert "liblikwid.so" in said
