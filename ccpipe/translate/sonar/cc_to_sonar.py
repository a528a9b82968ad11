"""ClusterCockpit's messages to Sonar's envelopes; the mapping is in docs/sonar/metrics.md."""

import math
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from ccpipe import __version__
from ccpipe.config import Duration
from ccpipe.errors import DataError
from ccpipe.formats import sonar
from ccpipe.formats.clustercockpit import NodeStates, TopologyEvent
from ccpipe.formats.lineprotocol import Lines, RejectedLine, SeriesTable
from ccpipe.formats.lineprotocol.precision import NO_TIME
from ccpipe.formats.lineprotocol.writer import original
from ccpipe.formats.nodelist import compress
from ccpipe.formats.sonar.envelopes import Envelopes
from ccpipe.jobs import Job, function_of, read_event
from ccpipe.message import Kind, Message
from ccpipe.pipeline import HoldingTranslator, Scope
from ccpipe.pipeline.state import StateStore
from ccpipe.translate.sonar.cc_to_sonar_sample import CpuTimes, PartialSample, SampleField, field_of
from ccpipe.translate.sonar.sonar_metrics import MAX_FUTURE
from ccpipe.translate.sonar.topology import sysinfo

SECOND = 10**9
MAX_WINDOWS = 100_000
MAX_PLANS = 100_000
"""Series whose plan is cached."""
MAX_REPORTED = 100_000
"""Whole envelopes that are remembered, to leave out metrics and events of the same data."""
MAX_JOBS = 100_000
"""Starts that are remembered; beyond, the oldest are forgotten."""

_KIND_OF_EVENT = {"job": "job", "nodestate": "cluster", "topology": "sysinfo"}
_TEXTS = {Kind.EVENT: {"sonar", *_KIND_OF_EVENT}, Kind.LOG: {"sonar"}}
"""Names of events and log lines that are translated, one by one."""

T = TypeVar("T")

META = sonar.MetadataObject(producer="ccpipe", version=__version__)

EnvelopeKey = tuple[str, str, str, int]
"""Kind of envelope, cluster, node, and time: the identity of an envelope."""

Limits = tuple[float, float]
Plan = tuple[str, str, SampleField | None, Limits] | str | None
"""Cluster, node, field and its limits; no field for an event or a log line. The reason, where a
metric cannot be used; None for what Sonar has no field for."""


class _Window(PartialSample):
    """A sample that is being put together."""

    def __init__(self, feed: int, opened: float) -> None:
        super().__init__()
        self.feed = feed
        """Number of the feed that opened it."""
        self.opened = opened


class CcToSonar(HoldingTranslator[Lines, Envelopes]):
    """Makes envelopes of lines.

    Metrics of one node and time become a sample. Since they arrive in several payloads, they are
    held until the node has sent sufficiently newer ones, or for `hold_timeout` by the clock. Later
    ones make another envelope of the same time.

    A node's data arrives on several subjects: its metrics, its errors in the log, and whole
    envelopes in events, which replace the metrics of their time. So it must receive all messages.
    """

    takes = Lines
    gives = Envelopes
    scope = Scope.CLUSTER

    def __init__(
        self,
        *,
        hold_timeout: Duration = Duration(5),
        sample_window: Duration = Duration(1),
        max_future: Duration = MAX_FUTURE,
        state_file: str = "",
    ) -> None:
        """Take the options.

        Parameters
        ----------
        hold_timeout
            How long a sample waits for more of its metrics.
        sample_window
            How far apart the times of one sample's metrics may be.
        max_future
            How far ahead of this machine's clock a sample may be: one beyond adds nothing to the
            processor time of jobs.
        state_file
            File on a local disk that keeps the starts of jobs and their processor time over a
            restart. Without it they are lost.

        """
        self.hold_timeout = float(hold_timeout)
        self.sample_window = max(1, round(float(sample_window) * SECOND))
        self.clock: Callable[[], float] = time.monotonic
        self._rejected: list[RejectedLine] = []  # of this feed
        self._state = StateStore(state_file)
        self._is_open = False
        self._cpu_times = CpuTimes(self._state, max_future=max_future)
        self._job_events = JobEvents(self._state)
        self._feeds = 0
        self._windows: OrderedDict[EnvelopeKey, _Window] = OrderedDict()
        self._open: dict[tuple[str, str], list[int]] = {}  # windows of each node
        self._reported: OrderedDict[EnvelopeKey, None] = OrderedDict()
        self._table: SeriesTable | None = None
        self._plans: dict[tuple[int, int], Plan] = {}
        self._jobs: dict[
            tuple[str, str], list[sonar.SlurmJob]
        ] = {}  # of this feed, by cluster and time

    def oldest_held(self) -> int | None:
        """Return the feed that opened the oldest window; see ``HoldingTranslator``."""
        return next(iter(self._windows.values())).feed if self._windows else None

    def feed(self, records: Lines) -> Envelopes:
        if not self._is_open:
            self._state.open()
            self._is_open = True
        self._feeds += 1
        ready: list[sonar.Envelope] = []
        lines, self._rejected = records, []
        if self._table is not lines.table or len(self._plans) > MAX_PLANS:
            self._table, self._plans = lines.table, {}
        touched: dict[tuple[str, str], None] = {}
        plans, now = self._plans, self.clock()
        for row, cell in enumerate(zip(lines.series, lines.fields, strict=True)):
            plan = plans[cell] if cell in plans else self._plan(lines, *cell)
            if plan is None:
                continue
            if isinstance(plan, str):
                self._reject(lines[row], plan)
                continue
            cluster, node, slot, (minimum, maximum) = plan
            if slot is None:
                self._take(lines[row], ready)
            elif (at := lines.times[row]) == NO_TIME or not (
                minimum <= lines.numbers[row] < maximum  # strings are NaN
            ):
                self._reject_value(lines[row], slot)
            elif (window := self._window(cluster, node, at, now)) is not None:
                window.values[slot] = lines.numbers[row]
                touched[cluster, node] = None
        ready += self._job_envelopes()
        for cluster, node in touched:
            self._close_older(cluster, node, ready)
        self._close_held(now, ready)
        self._state.commit(is_durable=False)
        return Envelopes(ready, rejected=self._rejected)

    def _reject(self, message: Message, reason: str) -> None:
        self._rejected.append(RejectedLine(0, 0, 0, reason, original(message)))

    def _reject_value(self, message: Message, slot: SampleField) -> None:
        reason = f"{message.value!r:.40} is not a value for Sonar's {slot.field}"
        self._reject(message, "the timestamp is missing" if message.time is None else reason)

    def flush(self) -> Envelopes:
        ready: list[sonar.Envelope] = []
        for key in list(self._windows):
            self._close(key, ready)
        self._state.commit(is_durable=True)
        return Envelopes(ready)

    def _plan(self, lines: Lines, series: int, field: int) -> Plan:
        name, tags, _ = lines.table.series[series]
        key = lines.table.fields[field]
        about = tags.get("cluster", ""), tags.get("hostname", "")
        plan: Plan = None
        try:
            if name in _TEXTS.get(Kind.of(key), ()):
                plan = *about, None, (0, 0)
            elif (slot := field_of(name, key, tags)) is not None:
                plan = *about, slot, slot.limits
        except DataError as error:
            plan = str(error)
        self._plans[series, field] = plan
        return plan

    def _window(self, cluster: str, node: str, at: int, now: float) -> _Window | None:
        """Return the window of a time; None if a whole envelope of it has arrived."""
        place = at // self.sample_window
        key = "sample", cluster, node, place
        window = self._windows.get(key)
        if window is None:
            if key in self._reported:
                return None
            window = self._windows[key] = _Window(self._feeds, now)
            self._open.setdefault((cluster, node), []).append(place)
        window.time = max(window.time, at)
        return window

    def _close_older(self, cluster: str, node: str, ready: list[sonar.Envelope]) -> None:
        """Close the windows of a node that has sent sufficiently newer metrics."""
        places = self._open.get((cluster, node), [])
        newest = max(places, default=0) * self.sample_window
        for place in list(places):
            if (place + 1) * self.sample_window + self.hold_timeout * SECOND <= newest:
                self._close(("sample", cluster, node, place), ready)

    def _close_held(self, now: float, ready: list[sonar.Envelope]) -> None:
        while self._windows:
            key, window = next(iter(self._windows.items()))
            if now - window.opened < self.hold_timeout and len(self._windows) <= MAX_WINDOWS:
                return
            self._close(key, ready)

    def _close(self, key: EnvelopeKey, ready: list[sonar.Envelope]) -> None:
        window = self._remove(key)
        _, cluster, node, _ = key
        if window is not None:
            sample = window.sample(cluster, node, self._cpu_times)
            ready.append(sonar.SampleEnvelope(META, sonar.SampleData(sample)))

    def _remove(self, key: EnvelopeKey) -> _Window | None:
        window = self._windows.pop(key, None)
        if window is not None:
            places = self._open[key[1], key[2]]
            places.remove(key[3])
            if not places:
                del self._open[key[1], key[2]]
        return window

    def _take(self, message: Message, ready: list[sonar.Envelope]) -> None:
        try:
            if message.name == "sonar" and message.kind is Kind.EVENT:
                ready += self._whole(message)
            elif message.time is None:
                raise DataError("the timestamp is missing")
            elif message.name == "sonar":
                self._take_log(message, message.time, ready)
            else:
                self._take_event(message, message.time, ready)
        except DataError as error:
            self._reject(message, str(error))

    def _whole(self, message: Message) -> list[sonar.Envelope]:
        """Return the envelope in an event; other messages of the same data are omitted."""
        envelopes = sonar.decode(str(message.value).encode(), profile="spec")
        if envelopes.rejected or not envelopes:
            bad = envelopes.rejected
            raise DataError(str(bad[0]) if bad else "the event contains no envelope")
        if message.time is not None:
            key = self._key(message.tags.get("function", ""), message, message.time)
            self._remove(key)
            self._reported[key] = None
            if len(self._reported) > MAX_REPORTED:
                self._reported.popitem(last=False)
        return envelopes

    def _key(self, kind: str, message: Message, at: int) -> EnvelopeKey:
        place = at // self.sample_window if kind == "sample" else at
        return kind, message.tags.get("cluster", ""), message.hostname, place

    def _take_event(self, message: Message, at: int, ready: list[sonar.Envelope]) -> None:
        payload = str(message.value)
        kind = _KIND_OF_EVENT[message.name]
        if self._key(kind, message, at) in self._reported:
            return
        if kind == "job":
            cluster, job = self._job_events.record(message)
            sonar.encode(
                _job_envelope(sonar.timestamp.write(at), cluster, [job])
            )  # raises, for it alone
            self._jobs.setdefault((cluster, sonar.timestamp.write(at)), []).append(job)
        elif kind == "cluster":
            ready.append(sonar.ClusterEnvelope(META, sonar.ClusterData(_cluster(payload, at))))
        else:
            ready.append(sonar.SysinfoEnvelope(META, sonar.SysinfoData(_node(payload, at))))

    def _take_log(self, message: Message, at: int, ready: list[sonar.Envelope]) -> None:
        cluster, node, detail = (
            message.tags.get("cluster", ""),
            message.hostname,
            str(message.value),
        )
        if message.tags.get("loglevel") == "error":
            if self._key("error", message, at) not in self._reported:
                error = sonar.ErrorObject(sonar.timestamp.write(at), detail, cluster, node)
                ready.append(sonar.Envelope(META, errors=(error,)))
        elif (window := self._window(cluster, node, at, self.clock())) is not None:
            window.errors.append(detail)

    def _job_envelopes(self) -> list[sonar.Envelope]:
        jobs, self._jobs = self._jobs, {}
        return [_job_envelope(at, cluster, members) for (cluster, at), members in jobs.items()]


def _job_envelope(at: str, cluster: str, jobs: Sequence[sonar.SlurmJob]) -> sonar.JobsEnvelope:
    return sonar.JobsEnvelope(META, sonar.JobsData(sonar.JobsAttributes(at, cluster, tuple(jobs))))


class JobEvents:
    """Makes job records of events ``job``; a stop's record includes the fields of its start."""

    def __init__(self, state: StateStore) -> None:
        self._starts = state.table("start_job", tuple[str, int], Job, maximum=MAX_JOBS)

    def record(self, message: Message) -> tuple[str, sonar.SlurmJob]:
        """Return the cluster and record of an event; the cluster may be in the payload only.

        Raises DataError if the event is neither a start nor an end, or cannot be decoded.
        """
        function, job = function_of(message), read_event(message)
        cluster = message.tags.get("cluster", "") or job.cluster
        if function == "stop_job":
            return cluster, _stopped(job, self._starts.get((cluster, job.id)))
        try:
            record = _started(job)
        except ValueError as error:
            raise DataError(f"walltime: {error}") from None
        metadata = {key: text for key, text in job.metadata.items() if key not in _LARGE}
        self._starts.put((cluster, job.id), replace(job, metadata=metadata, raw=None))
        return cluster, record


_LARGE = frozenset({"jobScript", "slurmInfo"})
"""Metadata that no record has, and that are not remembered."""


def _stopped(stop: Job, start: Job | None) -> sonar.SlurmJob:
    """Return the record of an end, with the fields of its start if that is of the same run."""
    begin = stop.start or (start.start if start else 0)
    record = sonar.SlurmJob(job_id=stop.id)
    if start is not None and start.start == begin:
        record = _started(start)
    elapsed = (stop.end - begin) // SECOND
    return replace(
        record,
        job_state=(stop.state or "completed").upper(),
        start_time=_time(begin),
        end_time=_time(stop.end),
        sacct=sonar.SacctData(ElapsedRaw=elapsed) if 0 < begin < stop.end else None,
    )


def _started(start: Job) -> sonar.SlurmJob:
    texts = start.metadata
    return sonar.SlurmJob(
        job_id=start.id,
        job_name=start.name,
        job_state="RUNNING",
        array_job_id=start.array_id,
        array_task_id=max(start.array_task or 0, 0),
        het_job_id=max(start.het_id, 0),
        het_job_offset=max(start.het_offset or 0, 0),
        user_name=start.user,
        account=start.project,
        submit_time=_time(start.submit),
        time_limit=sonar.ExtendedUint(math.ceil(start.walltime / 60))
        if start.walltime > 0
        else sonar.UNSET,
        partition=start.partition,
        reservation=texts.get("reservation", ""),
        nodes=tuple(compress(node.hostname for node in start.nodes)),
        distribution=texts.get("distribution", ""),
        requested_cpus=_number(texts, "requestedCpus") or start.hwthreads,
        requested_memory_per_node=start.memory // 10**6 * 1024,
        requested_node_count=_number(texts, "requestedNodes") or len(start.nodes),
        start_time=_time(start.start),
        allocated_resources=texts.get("allocatedResources", ""),
    )


def _cluster(payload: str, time: int) -> sonar.ClusterAttributes:
    """Convert the payload of an event ``nodestate``; raises DataError."""
    reported = _read(payload, NodeStates)
    names: dict[tuple[str, ...], list[str]] = {}
    for node in reported.nodes:
        states = tuple(state.upper() for state in node.states)
        names.setdefault(states, []).append(node.hostname)
    nodes = [sonar.ClusterNodes(tuple(compress(group)), states) for states, group in names.items()]
    return sonar.ClusterAttributes(
        time=sonar.timestamp.write(time), cluster=reported.cluster, slurm=True, nodes=tuple(nodes)
    )


def _node(payload: str, time: int) -> sonar.SysinfoAttributes:
    """Convert the payload of an event ``topology``; raises DataError."""
    return sysinfo(_read(payload, TopologyEvent), sonar.timestamp.write(time))


def _read(payload: str, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(payload, type=kind)
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError) as error:
        raise DataError(f"the event's payload: {error}") from None


def _time(time: int) -> str:
    return sonar.timestamp.write(time) if time else ""


def _number(meta: Mapping[str, str], key: str) -> int:
    text = meta.get(key, "")
    return int(text) if re.fullmatch(r"[0-9]{1,19}", text) else 0
