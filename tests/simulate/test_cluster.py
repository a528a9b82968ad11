"""Messages of a simulated cluster: its jobs, its series and their values."""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from statistics import correlation
from typing import TypeVar

import msgspec
import pytest

from ccpipe.bus.subjects import Subjects
from ccpipe.cli.config.clustercockpit import FOOTPRINTS
from ccpipe.config import Bus, Site
from ccpipe.formats.clustercockpit import NodeReasons, NodeState, NodeStates, StartJob, StopJob
from ccpipe.formats.lineprotocol import decode
from ccpipe.formats.sonar import SampleAttributes, SampleData, SampleEnvelope
from ccpipe.formats.sonar import decode as decode_envelopes
from ccpipe.jobs import Job, RunKey
from ccpipe.jobs.pending import PendingEvent
from ccpipe.node.sampling.collector import Metric
from ccpipe.simulate import Payload, SimulatedCluster, SimulationOptions
from ccpipe.simulate.cluster import PROCESSES, sample_envelope
from ccpipe.simulate.jobs import (
    FIRST_DRAIN,
    FIRST_FAILURE,
    HOLD_REASONS,
    LOAD,
    SECOND,
    Scheduler,
)
from ccpipe.simulate.kinds import (
    COMPUTE,
    CPU_KINDS,
    FULL_MEMORY,
    GPU,
    GPU_KINDS,
    IDLE,
    IDLE_GPU,
    MEMORY,
    SLOW_NODE,
    JobKind,
)
from ccpipe.simulate.series import RING, NodeParts, Ring, Rings, node_series, scale_of

T = TypeVar("T")
START = 1_790_000_000 * SECOND


def cluster(
    shape: SimulationOptions,
    *,
    seed: int = 1,
    subjects: dict[str, str] | None = None,
    name: str = "fox.test",
    start: int = START,
) -> SimulatedCluster:
    site = Site(cluster=name, hostname="x", bus=Bus(subjects=dict(subjects or {})))
    return SimulatedCluster(shape, Subjects.of(site), start=start, seed=seed)


def samples(made: SimulatedCluster, count: int) -> list[Payload]:
    return [payload for _ in range(count) for payload in made.sample()]


def events(payloads: Iterable[Payload], function: str, type_: type[T]) -> Iterator[T]:
    for payload in payloads:
        for line in decode(payload.body):
            if line.tags.get("function") == function:
                yield msgspec.json.decode(str(line.value), type=type_)


def test_sample_has_message_of_valid_lines_from_each_node() -> None:
    """Every line is in ClusterCockpit's line protocol, with the time of the sample."""
    made = cluster(
        SimulationOptions(nodes=20, metrics=150, parts=NodeParts(accelerator=2), failures=0)
    )
    metrics = [each for each in samples(made, 2) if each.subject.endswith("metrics")]
    assert len(metrics) == 40
    for number, payload in enumerate(metrics):
        lines = decode(payload.body)
        assert len(lines) == payload.lines
        is_busy = any(line.tags.get("stype") == "job" for line in lines)
        gpus = 2 * (number % 20 >= 13)
        chosen = node_series(NodeParts(accelerator=gpus), 150)
        assert len(lines) == 150 - (0 if is_busy else sum(each.is_of_job for each in chosen))
        kinds = {line.tags["type"] for line in lines}
        assert ("accelerator" in kinds) == bool(gpus)
        assert not lines.rejected
        assert not [problem for line in lines for problem in line.problems()]
        assert {line.hostname for line in lines} == {made.nodes[number % 20]}
        assert {line.tags["cluster"] for line in lines} == {"fox.test"}
        assert {line.time for line in lines} == {START + number // 20 * 10 * SECOND}


def test_output_is_reproducible_by_seed() -> None:
    """The same seed and times give the same bytes, another seed others."""
    shape = SimulationOptions(
        nodes=5, metrics=10, late=0.1, broken=0.1, repeated=0.1, failures=10,
        sonar_interval=SECOND * 60,
    )  # fmt: skip
    first, same, other = (samples(cluster(shape, seed=n), 60) for n in (1, 1, 2))
    assert first == same != other


def test_job_starts_and_stops_are_events() -> None:
    made = cluster(SimulationOptions(nodes=50, metrics=1))
    events = [each for each in samples(made, 720) if ".events.job" in each.subject]
    functions = Counter(next(iter(decode(each.body))).tags["function"] for each in events)
    assert functions["start_job"] >= functions["stop_job"] > 10


def test_starts_list_resources_and_every_job_stops() -> None:
    """Jobs that still run at the end of the last sample are cancelled then."""
    made = cluster(
        SimulationOptions(nodes=20, metrics=1, parts=NodeParts(hwthread=8, accelerator=2))
    )
    assert not list(made.end())  # nothing has started
    payloads = [*samples(made, 60), *made.end()]
    starts = {each.jobId: each for each in events(payloads, "start_job", StartJob)}
    assert {each.partition for each in starts.values()} == {"main", "gpu"}
    stops = {each.jobId: each for each in events(payloads, "stop_job", StopJob)}
    assert set(starts) == set(stops)
    assert {each.jobState for each in stops.values()} > {"cancelled"}
    assert max(each.stopTime for each in stops.values()) * SECOND == made.time
    for job in starts.values():
        assert {each.hostname for each in job.resources} <= set(made.nodes)
        gpus = ["0", "1"] if job.partition == "gpu" else []
        assert [each.accelerators for each in job.resources] == [gpus] * job.numNodes
        assert (job.numHwthreads, job.numAcc) == (8 * job.numNodes, len(gpus) * job.numNodes)
        assert {each.hostname >= "n0014" for each in job.resources} == {bool(gpus)}
        assert job.user
        assert 0 < job.submitTime <= job.startTime < stops[job.jobId].stopTime
        assert job.walltime > 0


def test_jobs_wait_in_queue_until_they_start() -> None:
    """Every job that leaves it runs, or is cancelled when the cluster ends."""
    made = cluster(SimulationOptions(nodes=10, metrics=1))
    payloads = [*samples(made, 1500), *made.end()]
    queued = list(events(payloads, "jobpending", PendingEvent))
    assert list(events(cluster(made.shape).sample(), "jobpending", PendingEvent))
    reported = {job.id: job for each in queued for job in each.pending}
    left = {job.id: job.state for each in queued for job in each.left}
    assert reported.keys() == left.keys()
    reasons = {job.reason for job in reported.values()}
    assert {"Resources", "Priority"} < reasons <= {"Resources", "Priority", *HOLD_REASONS}
    assert all(job.nodes and job.walltime and job.submit for job in reported.values())
    starts = {each.jobId for each in events(payloads, "start_job", StartJob)}
    assert {id_ for id_, state in left.items() if state == "running"} <= starts
    assert len(reported.keys() & starts) > 3


def test_later_cluster_has_other_job_ids() -> None:
    shape = SimulationOptions(nodes=50, metrics=1)
    starts = [
        {job.jobId for job in events(samples(made, 60), "start_job", StartJob)}
        for made in (cluster(shape), cluster(shape, start=START + 10 * SECOND))
    ]
    assert all(starts)
    assert not set.intersection(*starts)


def test_node_states_are_reported_every_minute() -> None:
    shape = SimulationOptions(
        nodes=40, metrics=1, parts=NodeParts(hwthread=8, accelerator=2), failures=100
    )
    made, found = cluster(shape), list[list[NodeState]]()
    for _ in range(30):
        payloads = list(made.sample())
        reported = [each.nodes for each in events(payloads, "nodestate", NodeStates)]
        jobs = made.jobs
        away = {
            name
            for name, *unusable in zip(made.nodes, jobs.is_away, jobs.is_drained, strict=True)
            if any(unusable)
        }
        explained = [each.nodes for each in events(payloads, "nodereason", NodeReasons)]
        assert {row.hostname for rows in explained for row in rows} == (away if reported else set())
        for nodes in reported:
            assert [each.hostname for each in nodes] == made.nodes
            for index, node in enumerate(nodes):
                job = made.jobs.job_of[index]
                is_down, is_drained = made.jobs.is_away[index], made.jobs.is_drained[index]
                state = "down" if is_down else "allocated" if job else "idle"
                assert node.states == [state, *(["drain"] if is_drained else [])]
                numbers = node.cpusAllocated, node.gpusAllocated, node.jobsRunning
                assert numbers == ((8, 2 * (job.partition == "gpu"), 1) if job else (0, 0, 0))
                assert bool(node.memoryAllocated) == bool(job)
        found += reported
    assert 5 <= len(found) <= 6
    states = {"+".join(node.states) for nodes in found for node in nodes}
    assert states >= {"allocated", "idle", "down", "idle+drain"}


def test_any_cluster_name_survives_round_trip() -> None:
    """Including characters that must be escaped, and a backslash, which must not."""
    name = r"a\b,c=d e"
    for payload in cluster(SimulationOptions(nodes=1, metrics=3), name=name).sample():
        lines = decode(payload.body)
        assert not lines.rejected
        assert {line.tags["cluster"] for line in lines} == {name}


@pytest.mark.parametrize("kind", ["late", "repeated"])
def test_faults_lose_no_line(kind: str) -> None:
    shape = SimulationOptions(nodes=10, metrics=3, failures=0)
    plain = samples(cluster(shape), 40)
    is_late = kind == "late"
    shape = shape._replace(late=0.2) if is_late else shape._replace(repeated=0.2)
    spoiled = samples(cluster(shape), 40)
    bodies = {each.body for each in plain if ".events." not in each.subject}
    found = [each.body for each in spoiled if ".events." not in each.subject]
    assert set(found) <= bodies
    if kind == "repeated":
        assert set(found) == bodies
        assert 40 < len(found) - len(bodies) < 120
    else:
        assert len(bodies) - len(found) < 80  # those that are held back at the end
        assert found != [each.body for each in plain if ".events." not in each.subject]


def test_malformed_line_is_among_valid_ones() -> None:
    made = cluster(SimulationOptions(nodes=10, metrics=3, broken=1.0))
    payload = next(each for each in made.sample() if each.broken)
    lines = decode(payload.body)
    assert (len(lines), len(lines.rejected)) == (3, 1)


def test_failed_node_sends_nothing() -> None:
    made = cluster(SimulationOptions(nodes=30, metrics=1, failures=100))
    silent = set(made.nodes)
    for _ in range(30):
        heard = {
            next(iter(decode(p.body))).hostname
            for p in made.sample()
            if p.subject.endswith("metrics")
        }
        away = {
            name for name, is_away in zip(made.nodes, made.jobs.is_away, strict=True) if is_away
        }
        assert heard == set(made.nodes) - away
        silent &= away
    assert any(made.jobs.is_away)


def test_sonar_samples_are_envelopes_with_processes_of_job() -> None:
    """One for each node and Sonar interval."""
    made = cluster(SimulationOptions(nodes=8, metrics=1, failures=0, sonar_interval=60 * SECOND))
    bodies = [each.body for each in samples(made, 12) if each.subject == "fox%2Etest.sonar.sample"]
    assert len(bodies) == 16
    decoded = decode_envelopes(b"".join(bodies), strict=True)
    assert not decoded.rejected
    assert len(decoded) == 16
    data = [each.data for each in decoded]
    processes = [
        len(job.processes)
        for sample in data
        if isinstance(sample, SampleData)
        for job in sample.attributes.jobs
    ]
    assert processes
    assert set(processes) == {4}


def test_cluster_uses_configured_subjects() -> None:
    flat = cluster(SimulationOptions(nodes=2, metrics=1), subjects={"metrics": "hpc-nats"})
    own = cluster(
        SimulationOptions(nodes=2, metrics=1), subjects={"metrics": "{cluster}.metrics.{hostname}"}
    )
    assert "hpc-nats" in {each.subject for each in flat.sample()}
    assert {"fox%2Etest.metrics.n0001", "fox%2Etest.metrics.n0002"} <= {
        each.subject for each in islice(own.sample(), 100)
    }


NOW = 1_790_000_000 * SECOND
PARTS = NodeParts(hwthread=64)


def sample(job: Job | None) -> SampleAttributes:
    now = job.start + 60 * SECOND if job else NOW
    payload = sample_envelope("fox", "n1", now, job, PARTS, 3)
    [envelope] = decode_envelopes(payload)
    assert isinstance(envelope, SampleEnvelope)
    assert envelope.data is not None
    return envelope.data.attributes


def job() -> Job:
    scheduler = Scheduler("fox", [f"n{i}" for i in range(9)], hwthreads=64, start=NOW, seed=1)
    changes = scheduler.advance(NOW + 86_400 * SECOND)
    return next(change.job for change in changes if change.function == "start_job")


def test_busy_node_has_processes_of_its_job() -> None:
    """They use the node, but at most all of its hardware threads."""
    made = job()
    attributes = sample(made)
    [shown] = attributes.jobs
    assert (shown.job, shown.user) == (made.id, made.user)
    assert len(shown.processes) == PROCESSES
    assert sum(process.cpu_util for process in shown.processes) <= 100 * PARTS.hwthread
    assert attributes.system is not None
    assert len(attributes.system.cpus) == PARTS.hwthread


def test_idle_node_has_no_job() -> None:
    attributes = sample(None)
    assert not attributes.jobs
    assert attributes.system is not None
    assert attributes.system.load1 < 1


DAY = 86_400 * SECOND
NODES = [f"n{number}" for number in range(200)]


def scheduler(*, seed: int = 1, failures: float = 0.0) -> Scheduler:
    return Scheduler("c", NODES, hwthreads=64, start=START, seed=seed, failures=failures)


def test_job_starts_and_stops_once_and_shares_no_node() -> None:
    """Over a day with failures: each stop has its start before it, each node one job at a time."""
    made = scheduler(failures=0.5)
    running = {job.id: job for job in made.running()}
    ended: set[RunKey] = set()
    for function, job in made.advance(START + DAY):
        if function == "start_job":
            assert job.id not in running
            assert job.run_key not in ended
            running[job.id] = job
        else:
            assert running.pop(job.id).nodes == job.nodes
            assert job.start < job.end
            ended.add(job.run_key)
        taken = [node.hostname for each in running.values() for node in each.nodes]
        assert len(taken) == len(set(taken))
    assert len(ended) > 100
    assert {job.id for job in made.running()} == set(running)


def test_cluster_is_busy_most_of_the_time() -> None:
    made = scheduler()
    shares = []
    for hour in range(1, 25):
        for _ in made.advance(START + hour * 3600 * SECOND):
            pass
        shares.append(sum(job is not None for job in made.job_of) / len(NODES))
    assert LOAD / 2 < sum(shares) / len(shares) <= 1


def test_failed_node_ends_job_and_recovers() -> None:
    """The job's state is ``node_fail``; half an hour later the node works again."""
    made = scheduler(failures=1.0)
    failed = [job for _, job in made.advance(START + DAY) if job.state == "node_fail"]
    assert failed
    assert 0 < sum(made.is_away) < len(NODES) / 4


def test_jobs_end_in_every_way() -> None:
    """Completed, failed, cancelled, at the time limit, without memory, with a node, preempted."""
    made = scheduler(failures=0.5)
    ended = [job for function, job in made.advance(START + 2 * DAY) if function == "stop_job"]
    assert {job.state for job in ended} == {
        "completed", "failed", "cancelled", "timeout", "out_of_memory", "node_fail", "preempted",
    }  # fmt: skip
    for job in ended:
        seconds = (job.end - job.start) / SECOND
        assert seconds <= job.walltime
        assert job.state != "timeout" or seconds == job.walltime


def test_requeued_job_runs_again_under_its_id() -> None:
    """After it was preempted, or its node failed; no other id repeats."""
    made = scheduler(failures=1.0)
    runs: dict[int, list[Job]] = {}
    for function, job in made.advance(START + 2 * DAY):
        if function == "stop_job":
            runs.setdefault(job.id, []).append(job)
    again = [each for each in runs.values() if len(each) > 1]
    assert {each[0].state for each in again} == {"preempted", "node_fail"}
    for first, second in again:
        assert first.end <= second.start
        assert (first.submit, first.user, first.run, second.run) == (
            second.submit,
            second.user,
            0,
            1,
        )


def test_first_failure_and_drain_are_within_minutes() -> None:
    """So that a demonstration shows them; without failures neither."""
    made = scheduler(failures=0.001)
    list(made.advance(START + FIRST_DRAIN))
    [drained] = made.node_changes
    assert drained.state == "drain"
    assert drained.reason
    assert made.is_drained[NODES.index(drained.node)]
    list(made.advance(START + FIRST_FAILURE))
    assert [change.state for change in made.node_changes] == ["drain", "down"]
    calm = scheduler()
    list(calm.advance(START + DAY))
    assert not calm.node_changes


def test_drained_node_ends_its_job_and_gets_no_other() -> None:
    """Until it is resumed."""
    made, seen = scheduler(failures=1.0), 0
    before: dict[int, Job | None] = {}
    for minute in range(24 * 60):
        list(made.advance(START + minute * 60 * SECOND))
        drained = [index for index in range(len(NODES)) if made.is_drained[index]]
        for index in drained:
            if index in before:
                assert made.job_of[index] in (before[index], None)
                seen += before[index] is not None and made.job_of[index] is None
        before = {index: made.job_of[index] for index in drained}
    assert seen > 3
    resumed = [change for change in made.node_changes if change.state == "resume"]
    assert resumed


def test_changes_of_nodes_are_logged() -> None:
    """As by slurmctld, with the reason."""
    made = cluster(SimulationOptions(nodes=30, metrics=1, failures=0.01))
    logs = [each for each in samples(made, 15) if ".log." in each.subject]
    lines = [next(iter(decode(each.body))) for each in logs]
    assert [(line.name, line.tags["loglevel"]) for line in lines] == [
        ("slurmctld", "warn"), ("slurmctld", "error"),
    ]  # fmt: skip
    assert "state set to DRAIN" in str(lines[0].value)
    assert not [problem for line in lines for problem in line.problems()]


def test_one_node_of_some_jobs_is_out_of_line() -> None:
    """Its values differ from those of the other nodes; a smaller job has none."""
    made, found = scheduler(), 0
    for hour in range(24):
        list(made.advance(START + hour * 3600 * SECOND))
        for job in made.running():
            kinds = [made.kind_of[NODES.index(node.hostname)] for node in job.nodes]
            slow = kinds.count(SLOW_NODE)
            assert slow <= (len(job.nodes) >= 3)
            assert len(set(kinds)) == 1 + slow
            found += slow
    assert found


def test_every_series_is_in_collector_tables_once() -> None:
    """No metric is made up, and each line of a sample has another series."""
    found = node_series(NodeParts(hwthread=8, accelerator=4), 1000)
    assert len(set(found)) == len(found)
    assert {"cpu_load", "mem_used", "cpu_user", "nv_util"} <= {each.metric.name for each in found}
    for each in found:
        assert dict(each.tags)["type"] in each.metric.types


def test_small_limit_includes_metrics_shown_by_cc_backend() -> None:
    """A job's footprint, CPU time, and the power of each socket; with GPUs also theirs."""
    names = [each.metric.name for each in node_series(NodeParts(accelerator=2), 10)]
    assert set(names) > {*FOOTPRINTS, "cpu_user", "cpu_power", "nv_util"}
    assert names.count("cpu_power") == names.count("nv_util") == 2


@pytest.mark.parametrize("limit", [1, 100, 1000])
def test_node_has_configured_number_of_series(limit: int) -> None:
    assert len(node_series(NodeParts(), limit)) == limit


def test_gpu_metrics_require_gpus() -> None:
    """A node without accelerators has no metric of them."""
    kinds = {dict(each.tags)["type"] for each in node_series(NodeParts(), 10_000)}
    assert "accelerator" not in kinds
    assert {"node", "hwthread", "socket", "memoryDomain"} <= kinds


def test_metrics_of_job_have_its_id() -> None:
    """Only on nodes that run one."""
    made = cluster(SimulationOptions(nodes=20, metrics=100, failures=0))
    found = 0
    for payload in made.sample():
        lines = [line for line in decode(payload.body) if line.tags.get("stype") == "job"]
        if lines:
            job = made.jobs.job_of[made.nodes.index(lines[0].hostname)]
            assert job is not None
            assert {line.tags["stype-id"] for line in lines} == {str(job.id)}
            found += 1
    assert found == sum(job is not None for job in made.jobs.job_of)


def test_series_include_all_hardware_threads_by_default() -> None:
    """The dashboard and Grafana's show the use of each."""
    used = [each for each in node_series(NodeParts(accelerator=4), 200)
            if each.metric.name == "cpu_used"]  # fmt: skip
    assert len(used) == 1 + 64


METRICS = {each.metric.name: each.metric for each in node_series(NodeParts(accelerator=1), 100_000)}


RINGS = Rings(1)


def encoded(ring: Ring) -> list[bytes]:
    return [ring.levels[level] for level in ring.course]


def values(name: str, kind: JobKind, scale: float = 1.0) -> list[float]:
    return [float(value.rstrip(b"i")) for value in encoded(RINGS.ring(METRICS[name], kind, scale))]


def mean(name: str, kind: JobKind) -> float:
    return sum(values(name, kind)) / RING


def test_integer_is_written_with_suffix() -> None:
    """As on the wire: with an ``i``."""
    found = encoded(Rings(1).ring(Metric("procs", "", int, ""), COMPUTE))
    assert all(value.endswith(b"i") and int(value[:-1]) >= 0 for value in found)


@pytest.mark.parametrize(
    "kind", [*CPU_KINDS, *GPU_KINDS, IDLE, SLOW_NODE], ids=lambda kind: kind.name
)
def test_values_of_every_kind_are_possible(kind: JobKind) -> None:
    """Times add up to the whole, memory to the node's, and nothing is negative."""
    for name in METRICS:
        assert min(values(name, kind)) >= 0, name
    for used, idle in zip(values("cpu_used", kind), values("cpu_idle", kind), strict=True):
        assert used + idle == pytest.approx(99.7, abs=0.5)
    assert max(values("mem_used", kind)) < values("mem_total", kind)[0]
    assert max(values("nv_fb_mem_used", kind)) < values("nv_fb_mem_total", kind)[0]
    assert max(values("nv_power_usage", kind)) < 400


def test_busy_node_has_higher_gauges_than_idle_one() -> None:
    assert max(values("cpu_user", IDLE)) <= 5
    assert 80 <= min(values("cpu_user", COMPUTE)) <= max(values("cpu_user", COMPUTE)) <= 100
    assert max(values("cpu_idle", COMPUTE)) < min(values("cpu_idle", IDLE))
    assert max(values("cpu_load", IDLE, 64)) < 2
    assert min(values("cpu_load", COMPUTE, 64)) > 50


def test_jobs_lie_in_roofline_where_their_kind_belongs() -> None:
    """Operations per byte: many if computing is the limit, few if memory is."""

    def intensity(kind: JobKind) -> float:
        return mean("flops_any", kind) / (1e6 * mean("mem_bw", kind))

    assert intensity(COMPUTE) > 10
    assert 0.1 < intensity(MEMORY) < 1
    assert mean("mem_bw", MEMORY) > 3 * mean("mem_bw", COMPUTE)


def test_power_and_temperature_follow_load() -> None:
    """Of kinds, and from sample to sample."""
    assert mean("cpu_power", COMPUTE) > mean("cpu_power", MEMORY) > 2 * mean("cpu_power", IDLE)
    assert mean("nv_power_usage", GPU) > 3 * mean("nv_power_usage", IDLE_GPU)
    assert correlation(values("nv_util", GPU), values("nv_power_usage", GPU)) > 0.8
    assert correlation(values("cpu_used", MEMORY), values("temperature", MEMORY)) > 0.8


def test_kinds_show_what_went_wrong() -> None:
    """Idle GPUs, memory at the job's limit, a node that does a fraction of the others' work."""
    assert max(values("nv_util", IDLE_GPU)) < 1
    [limit] = {*values("job_mem_limit", FULL_MEMORY)}
    assert 0.95 * limit < max(values("job_mem_used", FULL_MEMORY)) <= limit
    assert max(values("job_mem_used", MEMORY)) < 0.9 * limit
    for name in ("cpu_used", "flops_any", "mem_bw"):
        assert mean(name, SLOW_NODE) < 0.5 * mean(name, MEMORY)


def test_parts_have_their_share_of_node() -> None:
    """Of rates and amounts; a load and a percentage of a node are sums over hardware threads."""
    parts = NodeParts(hwthread=8, socket=2)
    scales = {
        (each.metric.name, dict(each.tags)["type"]): scale_of(each, parts)
        for each in node_series(parts, 1000)
    }
    assert scales["flops_any", "node"] == 1
    assert scales["flops_any", "hwthread"] == 1 / 8
    assert scales["mem_bw", "socket"] == 1 / 2
    assert scales["cpu_used", "node"] == scales["cpu_load", "node"] == 8
    assert scales["num_cpus", "node"] == 8
    assert scales["cpu_used", "hwthread"] == scales["ipc", "hwthread"] == 1
    assert scales["cpu_power", "socket"] == 1


def test_counter_never_falls_and_is_independent_of_jobs() -> None:
    found = Rings(1)
    busy = found.ring(METRICS["net_bytes_in"], COMPUTE)
    assert found.ring(METRICS["net_bytes_in"], IDLE) is busy
    counts = [int(value[:-1]) for value in encoded(busy)]
    assert counts == sorted(counts)
    assert len(counts) == RING


def test_constant_metrics_do_not_change() -> None:
    assert len({*values("mem_total", COMPUTE)}) == 1
