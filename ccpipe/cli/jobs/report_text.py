"""The report of one job, as text and as JSON."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from time import time

from ccpipe.cli.console.output import fold, print_json, table
from ccpipe.cli.jobs.listing import Row, known, short_time
from ccpipe.errors import DataError
from ccpipe.formats.nodelist import compress
from ccpipe.formats.units import parse_unit
from ccpipe.history.report import UsageReport
from ccpipe.jobs import Job
from ccpipe.terminal import format_elapsed, in_bytes, paint, plural, printable

SECOND = 10**9
INDENT = 11
WIDTH = 80
WHOLE = 0.99
"""Share of a job's time whose energy counts as that of all of it."""


def write_report(job: Job, report: UsageReport | None) -> None:
    """Print what is known of a job; without a store there is no report."""
    state = job.state.replace("_", " ")
    head = f"Job {job.id} on {job.cluster}: {state}"
    code = f", exit code {job.exit_code}" if job.exit_code is not None else ""
    print(paint(printable(head + code), "bold"))
    for name, text in [*_facts(job), *(_usage(report) if report else ())]:
        if text:
            print(f"  {name:<{INDENT}}{printable(text)}")
    if report and report.findings:
        print(paint("\nWhat went wrong:", "bold"))
        for finding in report.findings:
            lines = fold(printable(finding.text), WIDTH - 4)
            print("  - " + "\n    ".join(lines))
    if report and report.metrics:
        _write_metrics(report)


def write_pending(row: Row, output: str) -> None:
    """Print what a job requests and why it waits, as a table or as JSON."""
    if output == "json":
        print_json(known(row))
        return
    tasks = f": {plural(row['tasks'], 'task')} of an array" if row["tasks"] else ""
    print(paint(printable(f"Job {row['job']} on {row['cluster']}: pending{tasks}"), "bold"))
    amounts = ((row["nodes"], "node"), (row["hwthreads"], "hardware thread"))
    facts = {
        "name": row["name"],
        "user": row["user"] + (f", project {row['project']}" if row["project"] else ""),
        "partition": row["partition"],
        "requested": ", ".join(plural(amount, word) for amount, word in amounts if amount),
        "limit": format_elapsed(row["walltime"]) if row["walltime"] else "",
        "submitted": short_time(row["submit"]) if row["submit"] else "",
        "reason": row["reason"],
    }
    for name, text in facts.items():
        if text:
            print(f"  {name:<{INDENT}}{printable(text)}")


def _facts(job: Job) -> Iterator[tuple[str, str]]:
    yield "name", job.name
    yield "user", job.user + (f", project {job.project}" if job.project else "")
    yield "partition", job.partition
    names = [node.hostname for node in job.nodes]
    yield "nodes", f"{len(names)}: {_nodelist(names)}" if names else ""
    allocated = [
        plural(count, word)
        for count, word in ((job.hwthreads, "hardware thread"), (job.accelerators, "GPU"))
        if count
    ]
    yield "allocated", ", ".join(allocated)
    yield "submitted", _time(job.submit)
    yield "started", _time(job.start)
    yield "ended", _time(job.end)
    limit = f" of at most {format_elapsed(job.walltime)}" if job.walltime else ""
    yield "elapsed", format_elapsed(_elapsed(job)) + limit


def _nodelist(names: Sequence[str]) -> str:
    """Return a node list, shortened to one line."""
    try:
        text = ",".join(compress(names))
    except DataError:
        text = ",".join(names)
    room = WIDTH - INDENT - 10
    return text if len(text) <= room else f"{text[: room - 1]}…"


def _usage(report: UsageReport) -> Iterator[tuple[str, str]]:
    yield "node-hours", f"{report.node_hours:.2f}"
    if report.cpu_hours is not None:
        yield "CPU-hours", f"{report.cpu_hours:.2f}"
    if cpu := report.cpu:
        threads = f"{cpu.used:.1f} of {plural(round(cpu.allocated), 'hardware thread')}"
        yield "CPU", f"{_percent(cpu.share)}: {threads} on average"
    if memory := report.memory:
        sizes = f"{in_bytes(memory.used)} of {in_bytes(memory.allocated)}"
        yield "memory", f"{_percent(memory.share)}: {sizes} at the peak of each node"
    if gpu := report.gpu:
        gpus = f"{gpu.used:.2f} of {plural(round(gpu.allocated), 'GPU')}"
        yield "GPU", f"{_percent(gpu.share)}: {gpus} on average"
    if energy := report.energy:
        watts = f" of {plural(energy.nodes, 'node')}, mean {energy.joules / energy.seconds:.0f} W"
        has_gaps = energy.seconds < WHOLE * report.seconds
        gaps = f", measured for {format_elapsed(energy.seconds)}" if has_gaps else ""
        yield "energy", f"{energy.joules / 3.6e6:.3g} kWh ({energy.joules:.4g} J){watts}{gaps}"


def _write_metrics(report: UsageReport) -> None:
    title = "Metrics of its nodes, which it shares" if report.is_shared else "Metrics of its nodes"
    print(paint(f"\n{title}:", "bold"))
    heads = ("minimum", "mean", "maximum")
    rows = [
        [each.metric, *(_quantity(getattr(each, name), each.unit) for name in heads)]
        for each in report.metrics
    ]
    width = max(len(cell) for row in rows for cell in (*row[1:], *heads))
    aligned = [[row[0], *(cell.rjust(width) for cell in row[1:])] for row in rows]
    titles = ("METRIC", *(name.upper().rjust(width) for name in heads))
    print("\n".join(f"  {line}" for line in table(aligned, titles)))


def _quantity(value: float, unit: str) -> str:
    """Format a value with its unit, bytes with a fitting prefix: ``59.6 GiB``, ``12 percent``."""
    try:
        known = parse_unit(unit)
    except DataError:
        return f"{value:.4g} {unit}".rstrip()
    measure, slash, rest = known.measure.partition("/")
    if measure == "byte":
        return in_bytes(value * float(known.scale)) + slash + rest.replace("second", "s")
    return f"{value:.4g} {unit}"


def write_report_json(row: Row, job: Job, report: UsageReport | None) -> None:
    """Print a job, as a list has it, with its nodes and its report as one object."""
    hostnames = [node.hostname for node in job.nodes]
    more = {"hostnames": hostnames, "exit_code": job.exit_code, "report": report}
    print_json({**known(row), **more})


def _elapsed(job: Job) -> float:
    return (job.end / SECOND if job.end else time()) - job.start / SECOND


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _time(nanoseconds: int) -> str:
    if not nanoseconds:
        return ""
    local = datetime.fromtimestamp(nanoseconds / SECOND).astimezone()
    return local.strftime("%Y-%m-%d %H:%M:%S %Z")
