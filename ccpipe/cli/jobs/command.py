"""``ccpipe jobs``: the jobs of a user, and the report of one job."""

import contextlib
import os
import pwd
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from ccpipe.cli.console.options import (
    Count,
    Nodes,
    Since,
    SiteOptions,
    Until,
    expand_nodes,
    point_in_time,
)
from ccpipe.cli.console.store import Store, open_store
from ccpipe.errors import (
    DeniedError,
    MissingInputError,
    UnavailableError,
    UsageError,
    invalid_choice,
)
from ccpipe.terminal import note, plural, working

if TYPE_CHECKING:  # they take their time, and --help needs none of them
    from ccpipe.config import Site
    from ccpipe.history.index import JobIndex
    from ccpipe.history.interfaces import History
    from ccpipe.history.job_search import JobSearch

SECOND = 10**9
DEFAULT_SINCE = "7d"
PAGE = 1000
REPORT_SECONDS = 30 * 86400.0
"""How far back a store is searched for the job of a report."""

Texts = tuple[str, ...]
Sort = Literal[
    "job", "user", "project", "partition", "name", "state", "nodes", "hwthreads", "gpus", "submit",
    "start", "stop", "duration", "walltime",
]  # fmt: skip


async def jobs(
    job: int | None = None,
    /,
    *,
    user: Annotated[Texts, Parameter(alias="-u")] = (),
    all_: Annotated[bool, Parameter(name=["--all", "-a"])] = False,
    running: Annotated[bool, Parameter(alias="-r")] = False,
    since: Annotated[Since, Parameter(alias="-S")] = None,
    until: Annotated[Until, Parameter(alias="-E")] = None,
    state: Annotated[Texts, Parameter(alias="-s")] = (),
    partition: Annotated[Texts, Parameter(alias="-p")] = (),
    node: Nodes = None,
    sort: Sort | None = None,
    count: Count = None,
    output: Annotated[Literal["table", "json", "csv"], Parameter(alias="-o")] = "table",
    history: Store = None,
    where: SiteOptions = SiteOptions(),
) -> None:
    """List jobs, or show the report of one job.

    Lists your own jobs that run, those that wait, and those that ended within the
    last seven days. Jobs are read from the events that the cluster's stream stores, and from
    the store of --history, if there is one, which the report needs.

    Examples:
      ccpipe jobs --state pending
      ccpipe jobs --all --since 2d --state failed --state timeout -o csv
      ccpipe jobs 4711 --history /data/metrics

    Parameters
    ----------
    job
        Number of a job, of which the latest run is shown.
    user
        Jobs of this user; can be repeated. Default: your own.
    all_
        Jobs of all users.
    running
        Only jobs that run.
    since
        Jobs that ran at or after this time, such as 2026-11-20, or 2d for the last two days.
    until
        Jobs that started at or before this time.
    state
        Jobs in this state, such as pending or failed; can be repeated.
    partition
        Jobs of this partition; can be repeated.
    sort
        Column to sort by, largest numbers first; default: running jobs, then pending ones, then
        the latest to end.
    count
        Show at most this many jobs.
    output
        table for people; json (one object per line) or csv for programs.
    history
        The store that a bridge fills: a directory of Parquet files, or the URL of
        VictoriaMetrics, Prometheus or PostgreSQL; default: history.store of the
        configuration.
    """
    options = {"--user": user, "--all": all_, "--running": running, "--since": since,
               "--until": until, "--state": state, "--partition": partition, "--node": node,
               "--sort": sort, "--count": count}  # fmt: skip
    if job is not None:
        _refuse(options, output)
        await _show(job, output, where.site(), history)
        return
    if user and all_:
        raise UsageError("--user and --all exclude each other")
    if count is not None and count < 1:
        raise UsageError(f"--count {count}: must be at least 1")
    from ccpipe.history.job_search import JobSearch

    users = [] if all_ else list(user) or [_own_name()]
    search = JobSearch(
        user=users,
        state=_states(state),
        partition=list(partition),
        node=expand_nodes(node),
        is_running=True if running else None,
        since=point_in_time(since or DEFAULT_SINCE, "--since") / SECOND,
        until=point_in_time(until, "--until") / SECOND if until else None,
        sort=sort or "stop",
        descending=sort not in ("user", "project", "partition", "name", "state"),
    )
    await _list(search, count, output, where.site(), history)


def _states(texts: Sequence[str]) -> list[str]:
    """Return states in lower case; raises UsageError for a word that is not one."""
    from ccpipe.formats.clustercockpit import STATES

    states = [text.lower() for text in texts]
    known = ("running", "pending", *STATES)
    if unknown := [state for state in states if state not in known]:
        raise UsageError(f"--state: {invalid_choice(unknown[0], known)}")
    return states


def _refuse(options: Mapping[str, Any], output: str) -> None:
    """Raise UsageError for filters beside the number of a job."""
    given = [flag for flag, value in options.items() if value]
    if given:
        raise UsageError(f"{given[0]} filters a list: it cannot be used with the number of a job")
    if output == "csv":
        raise UsageError("the report of a job is printed as table or json, not csv")


async def _list(
    search: "JobSearch", count: int | None, output: str, site: "Site", where: str | None
) -> None:
    from ccpipe.cli.jobs.listing import WRITERS

    async with _opened(site, where) as history:
        index = await _read(site, history, search.since or 0.0, search.until or time.time())
    total = index.find(search).total
    rows = _rows(index, search, total if count is None else min(count, total))
    WRITERS[output](rows)
    if not total:
        of = f" of {', '.join(search.user)}" if search.user else ""
        note(f"no jobs{of}: --all shows those of all users, --since earlier ones")
    elif count is not None and count < total:
        note(f"{plural(total - count, 'more job')}: --count shows more")


def _rows(index: "JobIndex", search: "JobSearch", count: int) -> Iterator[Mapping[str, Any]]:
    import msgspec

    now = time.time()
    for offset in range(0, count, PAGE):
        page = msgspec.structs.replace(search, offset=offset, limit=min(PAGE, count - offset))
        yield from index.find(page, now).jobs


async def _show(number: int, output: str, site: "Site", where: str | None) -> None:
    from ccpipe.cli.jobs.report_text import (
        write_pending,
        write_report,
        write_report_json,
    )
    from ccpipe.history.job_search import JobSearch
    from ccpipe.history.report import fetch_report
    from ccpipe.jobs import RunKey
    from ccpipe.node.sampling.collector import units

    async with _opened(site, where) as history:
        now = time.time()
        index = await _read(site, history, now - REPORT_SECONDS, now)
        runs = index.find(JobSearch(job=[number])).jobs
        if not runs:
            raise MissingInputError(f"job {number}: no event of its start is stored")
        run = runs[0]
        if not run["start"]:
            write_pending(run, output)
            return
        job = index.get(RunKey(run["cluster"], number, run["start"] * SECOND))
        assert job is not None
        report = None
        if history is not None:
            with working("computing the report"):
                report = await fetch_report(history, job, units())
    if len(runs) > 1:
        note(f"job {number} ran {len(runs)} times: this is the latest run")
    if output == "json":
        write_report_json(run, job, report)
    else:
        write_report(job, report)
    if report is None:
        note("usage and energy are unknown: no store of metrics is configured (--history)")


@contextlib.asynccontextmanager
async def _opened(site: "Site", where: str | None) -> "AsyncIterator[History | None]":
    store = open_store(site, where)
    try:
        yield store
    finally:
        if store is not None:
            await store.close()


async def _read(site: "Site", history: "History | None", start: float, stop: float) -> "JobIndex":
    """Return an index in memory of the jobs of the stream, and of a time in the store.

    With a store of jobs a broker is not waited for: one that cannot be reached is reported.
    """
    from ccpipe.cli.jobs.read import stored_jobs
    from ccpipe.history.index import JobIndex

    index = JobIndex()
    has_jobs = False
    if history is not None:
        with contextlib.suppress(UsageError):  # a store of metrics only, or too many jobs
            with working("reading the jobs of the store"):
                index.put(await history.jobs(site.cluster, start, stop))
            has_jobs = True
    try:
        known = await stored_jobs(site, briefly=has_jobs)
        index.put(known.jobs.values())
        index.put_pending(known.pending.jobs.values())
    except (UnavailableError, DeniedError) as error:
        if not has_jobs:
            raise
        note(f"jobs are from the store only: {error}", "yellow")
    index.end_lost(time.time())
    return index


def _own_name() -> str:
    """Return the name of the user who runs the command."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        raise UsageError(f"user {os.geteuid()} has no name: give one with --user") from None
