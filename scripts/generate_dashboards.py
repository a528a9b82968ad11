#!/usr/bin/env python3
"""Write Grafana's dashboards, bridges/grafana/dashboards/*.json, from the tables below.

    scripts/generate_dashboards.py [DIRECTORY]  # a test compares the files

Dashboards name their data source by uid; bridges/grafana/provisioning has both.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

DIRECTORY = Path(__file__).parents[1] / "bridges/grafana/dashboards"

METRICS = {"type": "prometheus", "uid": "ccpipe-metrics"}
POSTGRES = {"type": "grafana-postgresql-datasource", "uid": "ccpipe-postgres"}

WIDTH = 24
HEIGHT = 8


class Panel(NamedTuple):
    """One panel: a row of a table below."""

    title: str
    unit: str
    """Grafana's name of the unit."""
    description: str
    """Its content, its unit, and the meaning of a high value."""
    queries: Sequence[str | tuple[str, str]]
    """PromQL or SQL; in pairs with the legend."""
    kind: str = "timeseries"
    width: int = 8


class Dashboard(NamedTuple):
    """One file."""

    name: str
    title: str
    variables: Sequence[tuple[str, str]]
    """Names of variables and the queries for their values, in the order of their dependence."""
    panels: Sequence[Panel]
    source: dict[str, str] = METRICS
    refresh: str = "30s"
    since: str = "now-1h"


CLUSTER = ("cluster", "label_values(cpu_load, cluster)")
HOSTNAME = ("hostname", 'label_values(cpu_load{cluster=~"$cluster"}, hostname)')
JOB = ("job", 'label_values(job_mem_used{cluster=~"$cluster"}, stype_id)')
C = 'cluster=~"$cluster"'
N = f'{C}, hostname=~"$hostname"'
J = f'{C}, stype="job", stype_id=~"$job"'
NODE = 'type="node"'
PER_NODE = "{{hostname}}"
PART = "{{hostname}} {{type_id}}"
DEVICE = "{{hostname}} {{stype_id}}"
USED = 'cpu_used{%s, type="node"} / on (cluster, hostname) num_cpus{%s, type="node"}'
FULL = '100 * mem_used{%s, type="node"} / on (cluster, hostname) mem_total{%s, type="node"}'

OVERVIEW = Dashboard(
    "cluster", "ccpipe: cluster", (CLUSTER,),
    (
        Panel("Reporting nodes", "short",
              "Number of nodes whose publisher sends metrics; fewer than the cluster has means "
              "that nodes or publishers are down.",
              [f"count(cpu_load{{{C}}})"], "stat", 6),
        Panel("CPU use", "percent",
              "Mean CPU use of all nodes in percent; 100 means that every hardware thread is "
              "busy.",
              [f"avg({USED % (C, C)})"], "stat", 6),
        Panel("Memory use", "percent",
              "Mean memory use of all nodes in percent, without file cache; close to 100 means "
              "that nodes are about to swap or kill processes.",
              [f"avg({FULL % (C, C)})"], "stat", 6),
        Panel("CPU power", "watt",
              "Power of all CPU sockets in watts, as RAPL reports it, without memory, GPUs and "
              "fans; high values mean busy CPUs.",
              [f"sum(cpu_power{{{C}}})"], "stat", 6),
        Panel("Load: highest 20 nodes", "short",
              "Running and blocked threads, averaged over one minute; more than the node has "
              "hardware threads means that it is oversubscribed or waits for a disk.",
              [(f"topk(20, cpu_load{{{C}}})", PER_NODE)], width=12),
        Panel("CPU use by node", "percent",
              "CPU use of each node in percent of its hardware threads; 100 means fully busy, 0 "
              "on an allocated node means an idle or hung job.",
              [(USED % (C, C), PER_NODE)], width=12),
        Panel("Memory use: highest 20 nodes", "percent",
              "Memory use in percent of the node's memory, without file cache; close to 100 means "
              "that processes may be killed.",
              [(f"topk(20, {FULL % (C, C)})", PER_NODE)], width=12),
        Panel("GPU use by node", "percent",
              "Mean share of time in percent in which the node's GPUs ran a kernel; high values "
              "mean busy GPUs, not necessarily efficient ones.",
              [(f"avg by (hostname) (nv_util{{{C}}})", PER_NODE)], width=12),
        Panel("Power", "watt",
              "Power in watts of CPU sockets, memory and GPUs of all nodes; high values mean a "
              "busy cluster.",
              [(f"sum(cpu_power{{{C}}})", "CPUs"),
               (f"sum(mem_power{{{C}}})", "memory"),
               (f"sum(nv_power_usage{{{C}}})", "GPUs")]),
        Panel("Network traffic", "Bps",
              "Bytes per second of all network interfaces, received above and sent below zero; "
              "InfiniBand has its own metrics.",
              [(f"sum(net_bytes_in_bw{{{C}}})", "in"), (f"-sum(net_bytes_out_bw{{{C}}})", "out")]),
        Panel("Lustre traffic", "Bps",
              "Bytes per second that clients read from Lustre (above zero) and write to it "
              "(below); high values slow down other jobs.",
              [(f"sum(lustre_read_bw{{{C}}})", "read"), (f"-sum(lustre_write_bw{{{C}}})", "written")]),
        Panel("Floating-point rate", "flops",
              "Floating-point operations per second of all nodes, where the perf or likwid "
              "collector runs; high values mean compute-bound jobs.",
              [(f"sum(flops_any{{{C}, {NODE}}})", "operations")]),
        Panel("Memory bandwidth", "MBs",
              "MB per second that all nodes read from and write to memory; high values mean "
              "memory-bound jobs.",
              [(f"sum(mem_bw{{{C}, {NODE}}})", "read and written")]),
        Panel("Pressure (PSI)", "percent",
              "Mean share of time in percent in which at least one task waited for a CPU, memory "
              "or a disk; high values mean that this resource is short.",
              [(f"avg(psi_cpu_some{{{C}}})", "CPU"),
               (f"avg(psi_memory_some{{{C}}})", "memory"), (f"avg(psi_io_some{{{C}}})", "I/O")]),
    ),
)  # fmt: skip

NODES = Dashboard(
    "node", "ccpipe: node", (CLUSTER, HOSTNAME),
    (
        Panel("Load", "short",
              "Running and blocked threads, averaged over 1 and 15 minutes; more than the node "
              "has hardware threads means that it is oversubscribed or waits for a disk.",
              [(f"cpu_load{{{N}}}", f"{PER_NODE} 1 min"), (f"load_fifteen{{{N}}}", f"{PER_NODE} 15 min")]),
        Panel("CPU use", "percent",
              "CPU time in percent of all hardware threads: programs (user), kernel (system) and "
              "waiting for disks (iowait); high system or iowait time is lost to jobs.",
              [(f"{name}{{{N}, {NODE}}} / on (cluster, hostname) num_cpus{{{N}}}", f"{PER_NODE} {what}")
            for name, what in (
                ("cpu_user", "user"), ("cpu_system", "system"), ("cpu_iowait", "iowait"))]),
        Panel("CPU use by hardware thread", "percent",
              "Use of each hardware thread in percent; a few at 100 and the others at 0 mean a "
              "serial job or wrong pinning.",
              [(f'cpu_used{{{N}, type="hwthread"}}', PART)]),
        Panel("Memory", "kbytes",
              "Memory in KiB: used by programs, file cache, and total; used close to total means "
              "that processes may be killed.",
              [(f"{name}{{{N}, {NODE}}}", f"{PER_NODE} {what}") for name, what in (
                ("mem_used", "used"), ("mem_cached", "cached"), ("mem_total", "total"))]),
        Panel("Swap in use", "kbytes",
              "Swap space in use in KiB; growing values mean that memory is short and programs "
              "are slowed down.",
              [(f"swap_used{{{N}}}", PER_NODE)]),
        Panel("Pressure (PSI)", "percent",
              "Share of time in percent in which at least one task waited for a CPU, memory or a "
              "disk; high values mean that this resource is short.",
              [(f"psi_{name}_some{{{N}}}", f"{PER_NODE} {name}") for name in ("cpu", "memory", "io")]),
        Panel("Socket power", "watt",
              "Power of each CPU socket and its memory in watts; high values mean a busy socket, "
              "up to its power limit.",
              [(f"cpu_power{{{N}}}", PART), (f"mem_power{{{N}}}", f"{PART} memory")]),
        Panel("Temperature", "celsius",
              "Temperature of each sensor in degrees Celsius; CPUs reduce their clock rate near "
              "their limit, often 90 to 100.",
              [(f"temperature{{{N}}}", DEVICE)]),
        Panel("Instructions per cycle", "short",
              "Instructions that a core completes per clock cycle; below 1 often means waiting "
              "for memory, 2 and more efficient code.",
              [(f"ipc{{{N}, {NODE}}}", PER_NODE)]),
        Panel("Floating-point rate", "flops",
              "Floating-point operations per second in double and single precision; high values "
              "mean a compute-bound job.",
              [(f"flops_dp{{{N}, {NODE}}}", f"{PER_NODE} double"),
               (f"flops_sp{{{N}, {NODE}}}", f"{PER_NODE} single")]),
        Panel("Memory bandwidth", "MBs",
              "MB per second read from and written to memory; near the node's maximum the job is "
              "memory-bound.",
              [(f"mem_bw{{{N}, {NODE}}}", PER_NODE)]),
        Panel("GPU use", "percent",
              "Share of time in percent in which a kernel ran on each GPU; 0 on an allocated GPU "
              "means that the job does not use it.",
              [(f"nv_util{{{N}}}", PART)]),
        Panel("GPU memory", "decmbytes",
              "Memory in use on each GPU in MB; close to its size means that the next allocation "
              "may fail.",
              [(f"nv_fb_mem_used{{{N}}}", PART)]),
        Panel("GPU power", "watt",
              "Power of each GPU in watts; high values mean a busy GPU, up to its power limit.",
              [(f"nv_power_usage{{{N}}}", PART)]),
        Panel("GPU temperature", "celsius",
              "Temperature of each GPU in degrees Celsius; GPUs reduce their clock rate near "
              "their limit, often 80 to 90.",
              [(f"nv_temp{{{N}}}", PART)]),
        Panel("Network traffic", "Bps",
              "Bytes per second of each network interface, received above and sent below zero; "
              "compare high values with the link speed.",
              [(f"net_bytes_in_bw{{{N}}}", f"{DEVICE} in"), (f"-net_bytes_out_bw{{{N}}}", f"{DEVICE} out")]),
        Panel("InfiniBand traffic", "Bps",
              "Bytes per second of each InfiniBand port, received above and sent below zero; high "
              "values mean a communication-bound job.",
              [(f"ib_recv_bw{{{N}}}", f"{DEVICE} in"), (f"-ib_xmit_bw{{{N}}}", f"{DEVICE} out")]),
        Panel("Lustre traffic", "Bps",
              "Bytes per second read from each Lustre file system (above zero) and written to it "
              "(below); high values slow down other jobs.",
              [(f"lustre_read_bw{{{N}}}", f"{DEVICE} read"),
               (f"-lustre_write_bw{{{N}}}", f"{DEVICE} written")]),
        Panel("Disk operations", "iops",
              "Reads (above zero) and writes (below) per second completed by each local disk; "
              "high values mean many small accesses.",
              [(f"rate(io_reads{{{N}}}[$__rate_interval])", f"{DEVICE} reads"),
               (f"-rate(io_writes{{{N}}}[$__rate_interval])", f"{DEVICE} writes")]),
        Panel("Fullest file system", "percent",
              "Space in use on the fullest local file system in percent; at 100 programs cannot "
              "write.",
              [(f"part_max_used{{{N}}}", PER_NODE)]),
        Panel("Processes", "short",
              "Number of processes that run, wait for a disk without being interruptible, or are "
              "zombies; many waiting ones mean a hanging file system.",
              [(f"procs_running{{{N}}}", f"{PER_NODE} running"),
               (f"procs_disk_sleep{{{N}}}", f"{PER_NODE} waiting for I/O"),
               (f"procs_zombie{{{N}}}", f"{PER_NODE} zombies")]),
    ),
)  # fmt: skip

JOBS = Dashboard(
    "job", "ccpipe: job", (CLUSTER, JOB),
    (
        Panel("Nodes", "short",
              "Number of nodes that report the job; fewer than it was allocated means that "
              "publishers are down.",
              [f"count(count by (hostname) (job_mem_used{{{J}}}))"], "stat", 6),
        Panel("CPU time in user mode", "percent",
              "CPU time of the job's programs on all nodes in percent; 100 is one hardware "
              "thread, so that n busy hardware threads show n times 100.",
              [f"sum(job_user_cpu{{{J}}})"], "stat", 6),
        Panel("Memory", "bytes",
              "Memory of the job on all nodes together in bytes, file cache included; compare it "
              "with what the job requested.",
              [f"sum(job_mem_used{{{J}}})"], "stat", 6),
        Panel("Peak memory of a node", "bytes",
              "Highest memory of the job on any node so far in bytes; at the limit the job is "
              "killed.",
              [f"max(job_max_mem_used{{{J}}})"], "stat", 6),
        Panel("CPU time by node", "percent",
              "CPU time of the job on each node in percent, 100 for one hardware thread: programs "
              "(user) and kernel (system); uneven nodes mean load imbalance.",
              [(f"job_user_cpu{{{J}}}", f"{DEVICE} user"), (f"job_sys_cpu{{{J}}}", f"{DEVICE} system")]),
        Panel("Memory by node", "bytes",
              "Memory of the job on each node in bytes, and its limit; at the limit the job is "
              "killed.",
              [(f"job_mem_used{{{J}}}", DEVICE), (f"job_mem_limit{{{J}}}", f"{DEVICE} limit")]),
        Panel("Local I/O by node", "Bps",
              "Bytes per second that the job reads from block devices (above zero) and writes to "
              "them (below); network file systems are not included.",
              [(f"rate(job_read_bytes{{{J}}}[$__rate_interval])", f"{DEVICE} read"),
               (f"-rate(job_write_bytes{{{J}}}[$__rate_interval])", f"{DEVICE} written")]),
        Panel("Pressure (PSI) by node", "percent",
              "Share of time in percent in which at least one task of the job waited for a CPU, "
              "memory or a disk; high values mean that this resource is short.",
              [(f"job_psi_{name}_some{{{J}}}", f"{DEVICE} {name}") for name in ("cpu", "memory", "io")]),
        *(Panel(title, unit, f"{what}; other jobs on shared nodes are included.", [
               (f"{name}{{{C}, {NODE}}} and on (cluster, hostname) job_mem_used{{{J}}}", PER_NODE)])
          for title, unit, name, what in (
            ("Floating-point rate of its nodes", "flops", "flops_any",
             "Floating-point operations per second; high values mean a compute-bound job"),
            ("Memory bandwidth of its nodes", "MBs", "mem_bw",
             "MB per second read from and written to memory; high values mean a memory-bound job"),
            ("Load of its nodes", "short", "cpu_load",
             "Running and blocked threads; more than hardware threads mean oversubscription"))),
        *(Panel(title, unit, f"{what}; other jobs on shared nodes are included.", [
               (f"{name}{{{C}}} and on (cluster, hostname) job_mem_used{{{J}}}", PART)])
          for title, unit, name, what in (
            ("GPU use of its nodes", "percent", "nv_util",
             "Share of time in percent in which a kernel ran on each GPU; 0 means an unused GPU"),
            ("Socket power of its nodes", "watt", "cpu_power",
             "Power of each CPU socket in watts; high values mean a busy socket"))),
    ),
)  # fmt: skip


def _counter(name: str, label: str = "component") -> list[tuple[str, str]]:
    rate = f"rate(ccpipe_{name}_total[$__rate_interval])"
    return [(f"sum by ({label}) ({rate})", f"{{{{{label}}}}}")]


PIPE = Dashboard(
    "pipe", "ccpipe: the pipe", (),
    (
        Panel("Lag", "short",
              "Messages in streams that bridges have not read yet; a growing value means that a "
              "bridge or its store is too slow or down.",
              ["sum(ccpipe_consumer_pending_messages)"], "stat", 6),
        Panel("Lost unread in 24 h", "short",
              "Messages that a stream deleted in 24 hours before a bridge read them; anything "
              "above 0 is lost data: enlarge the stream or speed up the bridge.",
              ["sum(increase(ccpipe_dropped_messages_total[1d]))"], "stat", 6),
        Panel("Dead letters in 24 h", "short",
              "Lines and records rejected in 24 hours; above 0, look at them with `ccpipe dead-letters "
              "list`.",
              ["sum(increase(ccpipe_dead_letters_total[1d]))"], "stat", 6),
        Panel("Longest time since a write", "s",
              "Seconds since the last accepted write of the bridge that has waited longest; a "
              "high value means that it has no data or its store fails.",
              ["max(time() - (ccpipe_last_write_timestamp_seconds > 0))"], "stat", 6),
        Panel("Records read", "cps",
              "Records per second that each source reads; it should follow what the publishers "
              "send.",
              _counter("read_records")),
        Panel("Records written", "cps",
              "Records per second that each sink stores; persistently less than is read means "
              "that data queues up.",
              _counter("written_records")),
        Panel("Writes", "cps",
              "Writes per second accepted by each sink; many writes with few records each mean "
              "small batches.",
              _counter("written_batches")),
        Panel("Lag by bridge", "short",
              "Messages in the stream that each bridge has not read yet; a growing value means "
              "that the bridge or its store is too slow or down.",
              [("ccpipe_consumer_pending_messages", "{{consumer}}")]),
        Panel("Dead letters", "cps",
              "Lines and records rejected per second; high values mean broken input or a store "
              "that refuses it: see `ccpipe dead-letters list`.",
              _counter("dead_letters")),
        Panel("Failed writes", "cps",
              "Writes per second that failed and were retried; high values mean that a store is "
              "down or overloaded.",
              _counter("retries")),
        Panel("Broker connection errors", "cps",
              "Errors per second of the connection to the broker, by kind; high values mean "
              "network trouble or missing permissions.",
              _counter("bus_errors", "kind")),
        Panel("Lines dropped by limits", "cps",
              "Lines per second dropped because a configured limit was reached, such as the size "
              "of the spool; anything above 0 is lost data.",
              _counter("dropped_lines")),
        Panel("Queue in memory", "bytes",
              "Bytes that were read and not yet written, by instance; high values mean that the "
              "store is slower than the source.",
              [("ccpipe_queued_bytes", "{{instance}}")]),
        Panel("Publisher spool", "bytes",
              "Bytes that publishers keep on disk while the broker is unreachable; at the spool's "
              "limit the oldest are dropped.",
              [("ccpipe_spooled_bytes", "{{instance}}")]),
        Panel("Failed collector reads", "cps",
              "Failed reads per second, by collector; anything above 0 means missing metrics: see "
              "the publisher's log.",
              _counter("failed_reads")),
        Panel("Missed samples", "cps",
              "Samples per second that were not taken in time; high values mean that nodes are "
              "overloaded or a collector is too slow.",
              _counter("missed_slots")),
    ),
)  # fmt: skip

_OF_CLUSTER = "cluster IN ($cluster) AND $__timeFilter(time)"
# Of the payload of a job's event, as ClusterCockpit writes it.
_STARTS = f"""\
SELECT (text::jsonb ->> 'jobId')::bigint AS job, text::jsonb ->> 'user' AS "user",
       text::jsonb ->> 'project' AS project, (text::jsonb ->> 'numNodes')::int AS nodes,
       time AS started, jsonb_path_query_array(text::jsonb, '$.resources[*].hostname') AS hosts
FROM messages
WHERE name = 'job' AND tags ->> 'function' = 'start_job' AND {_OF_CLUSTER}
ORDER BY time DESC LIMIT 500"""
_ENDS = f"""\
SELECT (text::jsonb ->> 'jobId')::bigint AS job, text::jsonb ->> 'jobState' AS state, time AS ended
FROM messages
WHERE name = 'job' AND tags ->> 'function' = 'stop_job' AND {_OF_CLUSTER}
ORDER BY time DESC LIMIT 500"""


def _mean(name: str, extra: str = "type = 'node'") -> list[str]:
    return [
        f"""\
SELECT $__timeGroupAlias(time, $__interval), hostname AS metric, avg(value) AS value
FROM messages
WHERE name = '{name}' AND {extra} AND {_OF_CLUSTER}
GROUP BY 1, 2 ORDER BY 1"""
    ]


SQL = Dashboard(
    "postgres", "ccpipe: jobs and nodes (PostgreSQL)",
    (("cluster", "SELECT DISTINCT cluster FROM series WHERE cluster IS NOT NULL ORDER BY 1"),),
    (
        Panel("Started jobs", "short",
              "The last 500 jobs that started in the time range, with user, project and nodes.",
              [_STARTS], "table", 24),
        Panel("Ended jobs", "short",
              "The last 500 jobs that ended in the time range, with their final state.",
              [_ENDS], "table", 12),
        Panel("Ended jobs by state", "short",
              "Number of jobs that ended in the time range by final state; many failed or "
              "node_fail ones deserve a look.",
              [f"""\
SELECT text::jsonb ->> 'jobState' AS state, count(*) AS jobs
FROM messages
WHERE name = 'job' AND tags ->> 'function' = 'stop_job' AND {_OF_CLUSTER}
GROUP BY 1 ORDER BY 2 DESC"""], "table", 12),
        Panel("Load by node", "short",
              "Running and blocked threads, averaged over one minute; more than the node has "
              "hardware threads means that it is oversubscribed or waits for a disk.",
              _mean("cpu_load")),
        Panel("Memory by node", "kbytes",
              "Memory used by programs in KiB; close to the node's memory means that processes "
              "may be killed.",
              _mean("mem_used")),
        Panel("GPU use by node", "percent",
              "Mean share of time in percent in which the node's GPUs ran a kernel; 0 on an "
              "allocated node means unused GPUs.",
              _mean("nv_util", "type = 'accelerator'")),
    ),
    POSTGRES,
    refresh="1m",
)  # fmt: skip

DASHBOARDS = (OVERVIEW, NODES, JOBS, PIPE, SQL)


def document(dashboard: Dashboard) -> dict[str, Any]:
    """Return a dashboard as Grafana's JSON model has it."""
    return {
        "uid": f"ccpipe-{dashboard.name}",
        "title": dashboard.title,
        "tags": ["ccpipe"],
        "schemaVersion": 39,
        "editable": False,
        "graphTooltip": 1,
        "refresh": dashboard.refresh,
        "time": {"from": dashboard.since, "to": "now"},
        "timezone": "browser",
        "links": [
            {"type": "dashboards", "tags": ["ccpipe"], "title": "ccpipe", "asDropdown": True,
             "includeVars": True, "keepTime": True}
        ],
        "templating": {"list": [_variable(*v, dashboard.source) for v in dashboard.variables]},
        "panels": list(_panels(dashboard)),
    }  # fmt: skip


def _variable(name: str, query: str, source: dict[str, str]) -> dict[str, Any]:
    return {
        "name": name, "type": "query", "datasource": source, "query": query, "definition": query,
        "refresh": 2, "sort": 1, "multi": name != "job", "includeAll": name == "cluster",
    }  # fmt: skip


def _panels(dashboard: Dashboard) -> Iterator[dict[str, Any]]:
    x = y = height = 0
    for number, panel in enumerate(dashboard.panels, 1):
        if x + panel.width > WIDTH:
            x, y, height = 0, y + height, 0
        own = HEIGHT // 2 if panel.kind == "stat" else HEIGHT
        yield {
            "id": number,
            "title": panel.title,
            "description": panel.description,
            "type": panel.kind,
            "datasource": dashboard.source,
            "gridPos": {"x": x, "y": y, "w": panel.width, "h": own},
            "fieldConfig": {"defaults": _defaults(panel), "overrides": []},
            "targets": [_target(dashboard.source, *each) for each in enumerate(panel.queries)],
        }
        x, height = x + panel.width, max(height, own)


def _defaults(panel: Panel) -> dict[str, Any]:
    if panel.kind != "timeseries":
        return {"unit": panel.unit}
    return {"unit": panel.unit, "custom": {"fillOpacity": 10, "showPoints": "never"}}


def _target(source: dict[str, str], number: int, query: str | tuple[str, str]) -> dict[str, Any]:
    text, legend = (query, "") if isinstance(query, str) else query
    common = {"refId": chr(ord("A") + number), "datasource": source}
    if source is METRICS:
        return {**common, "expr": text, "legendFormat": legend or "__auto"}
    form = "time_series" if "$__timeGroup" in text else "table"
    return {**common, "rawQuery": True, "rawSql": text, "format": form, "editorMode": "code"}


if __name__ == "__main__":
    directory = Path(sys.argv[1]) if sys.argv[1:] else DIRECTORY
    for each in DASHBOARDS:
        (directory / f"{each.name}.json").write_text(json.dumps(document(each), indent=1) + "\n")
