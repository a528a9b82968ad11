"""A library with LIKWID's interface, compiled with the real ``likwid.h``, for want of counters."""

import subprocess

import pytest

from tests.conftest import program

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
    folder = tmp_path_factory.mktemp("likwid")
    (folder / "likwid.c").write_text(STAND_IN)
    made = folder / "liblikwid.so"
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-o", made, folder / "likwid.c"], check=True, timeout=60
    )
    return str(made)
