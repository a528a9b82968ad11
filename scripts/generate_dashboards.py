#!/usr/bin/env python3
"""Write Grafana's dashboards, bridges/grafana/dashboards/*.json, from the tables below.

    scripts/generate_dashboards.py           # a test holds the files equal to this

Dashboards name their data source by uid; bridges/grafana/provisioning has both.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).parents[1] / "bridges/grafana/dashboards"

METRICS = {"type": "prometheus", "uid": "ccpipe-metrics"}
POSTGRES = {"type": "grafana-postgresql-datasource", "uid": "ccpipe-postgres"}

WIDTH = 24
HEIGHT = 8


class Panel(NamedTuple):
    """One panel: a row of a table below."""

    title: str
    unit: str
    """Grafana's name of the unit."""
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
        Panel("Nodes that report", "short", [f"count(cpu_load{{{C}}})"], "stat", 6),
        Panel("Processors in use", "percent", [f"avg({USED % (C, C)})"], "stat", 6),
        Panel("Memory in use", "percent", [f"avg({FULL % (C, C)})"], "stat", 6),
        Panel("Power of processors", "watt", [f"sum(cpu_power{{{C}}})"], "stat", 6),
        Panel("Load of nodes", "short", [(f"topk(20, cpu_load{{{C}}})", PER_NODE)], width=12),
        Panel("Processors by node", "percent", [(USED % (C, C), PER_NODE)], width=12),
        Panel("Fullest memory", "percent", [(f"topk(20, {FULL % (C, C)})", PER_NODE)], width=12),
        Panel("GPUs by node", "percent",
              [(f"avg by (hostname) (nv_util{{{C}}})", PER_NODE)], width=12),
        Panel("Power", "watt", [
            (f"sum(cpu_power{{{C}}})", "processors"),
            (f"sum(mem_power{{{C}}})", "memory"),
            (f"sum(nv_power_usage{{{C}}})", "GPUs")]),
        Panel("Network", "Bps", [
            (f"sum(net_bytes_in_bw{{{C}}})", "in"), (f"-sum(net_bytes_out_bw{{{C}}})", "out")]),
        Panel("File systems", "Bps", [
            (f"sum(lustre_read_bw{{{C}}})", "read"), (f"-sum(lustre_write_bw{{{C}}})", "written")]),
        Panel("Floating point", "flops", [(f"sum(flops_any{{{C}, {NODE}}})", "operations")]),
        Panel("Memory traffic", "MBs", [(f"sum(mem_bw{{{C}, {NODE}}})", "read and written")]),
        Panel("Tasks that wait", "percent", [
            (f"avg(psi_cpu_some{{{C}}})", "for a processor"),
            (f"avg(psi_memory_some{{{C}}})", "for memory"), (f"avg(psi_io_some{{{C}}})", "for a disk")]),
    ),
)  # fmt: skip

NODES = Dashboard(
    "node", "ccpipe: node", (CLUSTER, HOSTNAME),
    (
        Panel("Load", "short", [
            (f"cpu_load{{{N}}}", f"{PER_NODE} 1 min"), (f"load_fifteen{{{N}}}", f"{PER_NODE} 15 min")]),
        Panel("Processors", "percent", [
            (f"{name}{{{N}, {NODE}}} / on (cluster, hostname) num_cpus{{{N}}}", f"{PER_NODE} {what}")
            for name, what in (
                ("cpu_user", "user"), ("cpu_system", "system"), ("cpu_iowait", "iowait"))]),
        Panel("Hardware threads", "percent", [(f'cpu_used{{{N}, type="hwthread"}}', PART)]),
        Panel("Memory", "kbytes", [
            (f"{name}{{{N}, {NODE}}}", f"{PER_NODE} {what}") for name, what in (
                ("mem_used", "used"), ("mem_cached", "cached"), ("mem_total", "total"))]),
        Panel("Swap space", "kbytes", [(f"swap_used{{{N}}}", PER_NODE)]),
        Panel("Tasks that wait", "percent", [
            (f"psi_{name}_some{{{N}}}", f"{PER_NODE} {name}") for name in ("cpu", "memory", "io")]),
        Panel("Power of sockets", "watt", [
            (f"cpu_power{{{N}}}", PART), (f"mem_power{{{N}}}", f"{PART} memory")]),
        Panel("Temperature", "celsius", [(f"temperature{{{N}}}", DEVICE)]),
        Panel("Instructions in a cycle", "short", [(f"ipc{{{N}, {NODE}}}", PER_NODE)]),
        Panel("Floating point", "flops", [
            (f"flops_dp{{{N}, {NODE}}}", f"{PER_NODE} double"),
            (f"flops_sp{{{N}, {NODE}}}", f"{PER_NODE} single")]),
        Panel("Memory traffic", "MBs", [(f"mem_bw{{{N}, {NODE}}}", PER_NODE)]),
        Panel("GPUs", "percent", [(f"nv_util{{{N}}}", PART)]),
        Panel("Memory of GPUs", "decmbytes", [(f"nv_fb_mem_used{{{N}}}", PART)]),
        Panel("Power of GPUs", "watt", [(f"nv_power_usage{{{N}}}", PART)]),
        Panel("Temperature of GPUs", "celsius", [(f"nv_temp{{{N}}}", PART)]),
        Panel("Network", "Bps", [
            (f"net_bytes_in_bw{{{N}}}", f"{DEVICE} in"), (f"-net_bytes_out_bw{{{N}}}", f"{DEVICE} out")]),
        Panel("InfiniBand", "Bps", [
            (f"ib_recv_bw{{{N}}}", f"{DEVICE} in"), (f"-ib_xmit_bw{{{N}}}", f"{DEVICE} out")]),
        Panel("Lustre", "Bps", [
            (f"lustre_read_bw{{{N}}}", f"{DEVICE} read"),
            (f"-lustre_write_bw{{{N}}}", f"{DEVICE} written")]),
        Panel("Disks", "iops", [
            (f"rate(io_reads{{{N}}}[$__rate_interval])", f"{DEVICE} reads"),
            (f"-rate(io_writes{{{N}}}[$__rate_interval])", f"{DEVICE} writes")]),
        Panel("Fullest file system", "percent", [(f"part_max_used{{{N}}}", PER_NODE)]),
        Panel("Processes", "short", [
            (f"procs_running{{{N}}}", f"{PER_NODE} running"),
            (f"procs_disk_sleep{{{N}}}", f"{PER_NODE} waiting for a disk"),
            (f"procs_zombie{{{N}}}", f"{PER_NODE} zombies")]),
    ),
)  # fmt: skip

JOBS = Dashboard(
    "job", "ccpipe: job", (CLUSTER, JOB),
    (
        Panel("Nodes", "short", [f"count(count by (hostname) (job_mem_used{{{J}}}))"], "stat", 6),
        Panel("Processors", "percent", [f"sum(job_user_cpu{{{J}}})"], "stat", 6),
        Panel("Memory", "bytes", [f"sum(job_mem_used{{{J}}})"], "stat", 6),
        Panel("Highest memory", "bytes", [f"max(job_max_mem_used{{{J}}})"], "stat", 6),
        Panel("Processors by node", "percent", [
            (f"job_user_cpu{{{J}}}", f"{DEVICE} user"), (f"job_sys_cpu{{{J}}}", f"{DEVICE} system")]),
        Panel("Memory by node", "bytes", [
            (f"job_mem_used{{{J}}}", DEVICE), (f"job_mem_limit{{{J}}}", f"{DEVICE} limit")]),
        Panel("Read and written", "Bps", [
            (f"rate(job_read_bytes{{{J}}}[$__rate_interval])", f"{DEVICE} read"),
            (f"-rate(job_write_bytes{{{J}}}[$__rate_interval])", f"{DEVICE} written")]),
        Panel("Tasks that wait", "percent", [
            (f"job_psi_{name}_some{{{J}}}", f"{DEVICE} {name}") for name in ("cpu", "memory", "io")]),
        # Of the job's nodes, whoever else runs there.
        *(Panel(title, unit, [
            (f"{name}{{{C}, {NODE}}} and on (cluster, hostname) job_mem_used{{{J}}}", PER_NODE)])
          for title, unit, name in (
            ("Floating point of its nodes", "flops", "flops_any"),
            ("Memory traffic of its nodes", "MBs", "mem_bw"),
            ("Load of its nodes", "short", "cpu_load"))),
        *(Panel(title, unit, [
            (f"{name}{{{C}}} and on (cluster, hostname) job_mem_used{{{J}}}", PART)])
          for title, unit, name in (
            ("GPUs of its nodes", "percent", "nv_util"),
            ("Power of its sockets", "watt", "cpu_power"))),
    ),
)  # fmt: skip


def _counter(name: str) -> list[tuple[str, str]]:
    return [(f"sum by (part) (rate(ccpipe_{name}_total[$__rate_interval]))", "{{part}}")]


PIPE = Dashboard(
    "pipe", "ccpipe: the pipe", (),
    (
        Panel("Messages behind", "short", ["sum(ccpipe_unread_messages)"], "stat", 6),
        Panel("Lost unread in a day", "short", [
            "sum(increase(ccpipe_unread_messages_dropped_total[1d]))"], "stat", 6),
        Panel("Dead letters in a day", "short", [
            "sum(increase(ccpipe_dead_letters_total[1d]))"], "stat", 6),
        Panel("Longest since a write", "s", [
            "max(time() - (ccpipe_last_write_seconds > 0))"], "stat", 6),
        Panel("Read", "cps", _counter("read_records")),
        Panel("Written", "cps", _counter("written_records")),
        Panel("Writes", "cps", _counter("written_batches")),
        Panel("Messages behind, by bridge", "short", [("ccpipe_unread_messages", "{{part}}")]),
        Panel("Dead letters", "cps", _counter("dead_letters")),
        Panel("Writes that failed", "cps", _counter("retries")),
        Panel("Errors of the broker connection", "cps", _counter("bus_errors")),
        Panel("Lines dropped by limits", "cps", _counter("dropped_lines")),
        Panel("Read, not yet written", "bytes", [("ccpipe_queued_bytes", "{{instance}}")]),
        Panel("Spooled by publishers", "bytes", [("ccpipe_spooled_bytes", "{{instance}}")]),
        Panel("Collectors that failed", "cps", _counter("failed_reads")),
        Panel("Missed samples", "cps", _counter("missed_slots")),
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
        Panel("Jobs that started", "short", [_STARTS], "table", 24),
        Panel("Jobs that ended", "short", [_ENDS], "table", 12),
        Panel("How jobs ended", "short", [f"""\
SELECT text::jsonb ->> 'jobState' AS state, count(*) AS jobs
FROM messages
WHERE name = 'job' AND tags ->> 'function' = 'stop_job' AND {_OF_CLUSTER}
GROUP BY 1 ORDER BY 2 DESC"""], "table", 12),
        Panel("Load of nodes", "short", _mean("cpu_load")),
        Panel("Memory of nodes", "kbytes", _mean("mem_used")),
        Panel("GPUs of nodes", "percent", _mean("nv_util", "type = 'accelerator'")),
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


def pages() -> dict[Path, str]:
    """Return the contents of each file."""
    return {
        FOLDER / f"{each.name}.json": json.dumps(document(each), indent=1) + "\n"
        for each in DASHBOARDS
    }


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for path, text in pages().items():
        path.write_text(text)
