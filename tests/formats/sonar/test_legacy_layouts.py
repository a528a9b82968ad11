"""Older layouts: flat objects, renamed fields, sacct's columns."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.formats.sonar import (
    ExtendedUint,
    SacctData,
    SampleJob,
    SampleProcess,
    SampleProcessGpu,
    SlurmJob,
    decode,
)
from tests.formats.sonar import examples
from tests.formats.sonar.examples import bad, changed, one

SAMPLE: dict[str, Any] = {
    "v": "0.13.200",
    "time": "2025-02-27T01:00:01+01:00",
    "host": "c1-6.fox",
    "load": [100, 200],
    "gpuinfo": [
        {"fan%": 27, "mode": "Exclusive", "perf": "P8", "musekib": 1014720, "cutil%": 3,
         "mutil%": 4, "tempc": 26, "poww": 4, "powlimw": 250, "cez": 300, "memz": 405},
        {"perf": "Unknown"},
    ],
    "samples": [
        {"user": "ann", "cmd": "python3", "job": 7, "ppid": 22, "cpu%": 51.3, "cpukib": 194,
         "rssanonkib": 74, "cputime_sec": 9534, "rolledup": 255},
        {"user": "bob", "cmd": "x", "job": 0, "pid": 5},
        {"user": "ann", "cmd": "train", "job": 7, "pid": 23, "gpus": "1,3", "gpu%": 44,
         "gpumem%": 5, "gpukib": 101},
        {"user": "bob", "cmd": "y", "pid": 6, "gpus": "none"},
    ],
}  # fmt: skip


def test_old_sample_is_converted() -> None:
    """Processes are grouped by job, without one separate; GPUs share a process's usage evenly."""
    envelope = one(json.dumps(SAMPLE))
    assert (envelope.meta.producer, envelope.meta.version) == ("sonar", "0.13.200")
    sample = envelope.data.attributes
    assert (sample.time, sample.node, sample.cluster) == (SAMPLE["time"], "c1-6.fox", "")
    assert sample.system.cpus == (100, 200)
    uses = tuple(SampleProcessGpu(i, "", 22.0, 50, 2.5) for i in (1, 3))
    first = SampleProcess(
        cmd="python3", ppid=22, cpu_avg=51.3, virtual_memory=194, resident_memory=74,
        cpu_time=9534, rolledup=255,
    )  # fmt: skip
    assert sample.jobs == (
        SampleJob(7, "ann", 0, (first, SampleProcess(cmd="train", pid=23, gpus=uses))),
        SampleJob(0, "bob", 1, (SampleProcess(cmd="x", pid=5),)),
        SampleJob(0, "bob", 1, (SampleProcess(cmd="y", pid=6),)),
    )
    card, unknown = sample.system.gpus
    assert (card.fan, card.compute_mode, card.memory, card.ce_util) == (27, "Exclusive", 1014720, 3)
    assert (card.memory_util, card.temperature, card.power_limit) == (4, 26, 250)
    assert (unknown.index, unknown.performance_state.value) == (1, None)
    assert envelope.unknown == {("data", "attributes", "system", "gpus", 1, "perf"): "Unknown"}


@pytest.mark.parametrize("profile", ["auto", "spec", "sonar"])
def test_old_performance_state_is_converted_for_any_profile(profile: str) -> None:
    """The old format uses neither number encoding."""
    envelope = one(json.dumps(SAMPLE), profile=profile)
    assert envelope.data.attributes.system.gpus[0].performance_state == ExtendedUint(8)


def test_old_node_is_converted() -> None:
    """The description gives the CPUs if their number agrees."""
    node = {
        "timestamp": "2025-03-01T00:00:01+01:00", "hostname": "ml1", "cpu_cores": 56, "mem_gb": 125,
        "description": "2x14 (hyperthreaded) Intel(R) Xeon(R) Gold 5120, 125 GiB, 3x RTX @ 11GiB",
        "gpu_info": [{"bus_addr": "00:18", "index": 2, "uuid": "GPU-1", "arch": "Turing",
                      "mem_size_kib": 11, "max_mem_clock_mhz": 7000}],
    }  # fmt: skip
    read = one(json.dumps(node)).data.attributes
    assert (read.sockets, read.cores_per_socket, read.threads_per_core) == (2, 14, 2)
    assert (read.cpu_model, read.memory) == ("Intel(R) Xeon(R) Gold 5120", 125 * 2**20)
    (card,) = read.cards
    assert (card.address, card.index, card.architecture) == ("00:18", 2, "Turing")
    assert (card.memory, card.max_memory_clock) == (11, 7000)
    odd = one(json.dumps(node | {"cpu_cores": 55}))
    assert odd.data.attributes.sockets == 0
    assert odd.unknown["data", "attributes", "cpu_cores"] == 55


def test_old_jobs_are_converted() -> None:
    """With sacct's columns; their time is the latest one in any job."""
    job = {"JobID": "7", "JobIDRaw": "7", "State": "COMPLETED", "TimelimitRaw": "90",
           "Submit": "2025-03-08T13:49:06+01:00", "Start": "2025-03-08T18:00:00+01:00",
           "End": "2025-03-08T17:30:00+00:00"}  # fmt: skip
    jobs = one(json.dumps({"version": "0.13.0", "jobs": [job]})).data.attributes
    assert jobs.time == "2025-03-08T17:30:00+00:00"
    (read,) = jobs.slurm_jobs
    assert (read.job_id, read.job_state, read.time_limit) == (7, "COMPLETED", ExtendedUint(90))


def test_old_errors_are_converted() -> None:
    envelope = one('{"v":"0.13.0","error":"No can do","timestamp":"2025-03-08T13:49:06+01:00"}')
    (error,) = envelope.errors
    assert (error.detail, error.time) == ("No can do", "2025-03-08T13:49:06+01:00")


def test_strict_decoder_rejects_old_format() -> None:
    assert "$.samples" in {
        problem.path for problem in bad(json.dumps(SAMPLE), strict=True).problems
    }


values = st.recursive(
    st.none()
    | st.integers(-1, 2**65)
    | st.text(max_size=3)
    | st.sampled_from(["P8", "1,2", "none"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["v", "time", "host", "samples", "load", "gpuinfo", "perf", "gpus", "gpu%",
                         "gpukib", "job", "user", "epoch", "hostname", "description", "cpu_cores",
                         "mem_gb", "gpu_info", "jobs", "Submit", "error", "timestamp"]),
        inner, max_size=5,
    ),
    max_leaves=12,
)  # fmt: skip


@given(values)
def test_decoder_decodes_or_rejects_any_old_object(value: Any) -> None:
    decoded = decode(json.dumps(value).encode())
    assert len(decoded) + len(decoded.rejected) >= 1


def test_renamed_fields_are_read() -> None:
    """Of a node, of processes, and of the array of jobs."""
    tree = json.loads(examples.SYSINFO)
    attributes = tree["data"]["attributes"]
    attributes["os"] = attributes.pop("os_name")
    attributes["os-version"] = attributes.pop("os_release")
    assert one(json.dumps(tree)) == one(examples.SYSINFO)
    text = examples.SAMPLE.replace("resident_memory", "resident").replace("virtual_m", "m")
    text = text.replace('"memory":9201936', '"virtual":9201936')
    assert one(text) == one(examples.SAMPLE)
    assert one(examples.JOBS.replace("slurm_jobs", "slurm-jobs")) == one(examples.JOBS)


def test_null_is_read_as_missing() -> None:
    """Go's encoder writes it for missing values."""
    text = examples.SAMPLE.replace('"fan":37', '"fan":null').replace("}}}", '}},"errors":null}')
    without = examples.SAMPLE.replace('"fan":37,', "")
    assert one(text) == one(without)


@pytest.mark.parametrize("old", ['"jobs":3', '"jobs":[3,[]]', '"jobs":[{"processes":7}]'])
def test_decoder_rejects_unexpected_shapes(old: str) -> None:
    """Anything but an array of objects breaks the type."""
    payload = '{"meta":{},"data":{"type":"sample","attributes":{"os":1,' + old + "}}}"
    assert decode(payload.encode()).rejected[0].path.startswith("$.data.attributes.jobs")


WRAPPED = (
    '{"topic":"fox.educloud.no.sample",\n "key":"vm",\n "client":"fox.educloud.no/vm",\n'
    ' "value":%s\n}\n'
)


@pytest.mark.parametrize("strict", [False, True])
def test_decoder_unwraps_output_of_sonar_daemon(strict: bool) -> None:
    """Without a sink it writes each envelope as the value of an object with its topic."""
    payload = "".join(WRAPPED % text for text in examples.ALL).encode()
    decoded = decode(payload, strict=strict)
    assert decoded.rejected == []
    assert decoded == [one(text) for text in examples.ALL]


def test_decoder_rejects_only_bad_wrapped_envelope() -> None:
    """Also if the wrapping is truncated."""
    broken = WRAPPED % changed(examples.SYSINFO, "data.attributes.sockets", "two")
    payload = broken + (WRAPPED % examples.SAMPLE)[:300] + "\n" + WRAPPED % examples.ERROR
    decoded = decode(payload.encode())
    assert decoded == [one(examples.ERROR)]
    first, second, *_ = decoded.rejected
    assert (first.path, first.rule) == ("$.data.attributes.sockets", "expected `int`, got `str`")
    assert second.start == len(broken)


OLD_JOB = {
    "JobID": "1467073_1.extern",
    "JobIDRaw": "1467074.extern",
    "User": "moonunit",
    "Account": "ec666",
    "State": "CANCELLED by 1234",
    "Start": "2025-02-01T10:00:00+01:00",
    "End": "Unknown",
    "Submit": "2025-02-01T09:00:00+01:00",
    "AveCPU": "1-02:03:04",
    "AveRSS": "1.5M",
    "AveDiskRead": "123",
    "MaxRSS": "",
    "ElapsedRaw": "113062",
    "UserCPU": "14:50.006",
    "ExitCode": "3:0",
    "TimelimitRaw": "20160",
    "NodeList": "c1-[1-3,5],bigmem-1",
    "Priority": "1001",
    "ReqMem": "2G",
    "ReqCPUS": "22",
    "Layout": "Cyclic",
    "JobName": "blåbær",
    "AllocTRES": "cpu=1",
}


def envelope_of(*jobs: dict[str, Any]) -> str:
    text = changed(examples.JOBS, "data.type", "slurm_jobs")
    return changed(text, "data.attributes.slurm_jobs", list(jobs))


def test_columns_of_sacct_move_to_current_fields() -> None:
    """Numbers, times, sizes, durations and node lists."""
    envelope = one(envelope_of(OLD_JOB))
    assert envelope.unknown == {}
    assert envelope.data.attributes.slurm_jobs[0] == SlurmJob(
        job_id=1467074,
        job_step="extern",
        job_name="blåbær",
        job_state="CANCELLED",
        array_job_id=1467073,
        array_task_id=1,
        user_name="moonunit",
        account="ec666",
        submit_time="2025-02-01T09:00:00+01:00",
        time_limit=ExtendedUint(20160),
        nodes=("c1-[1-3,5]", "bigmem-1"),
        priority=ExtendedUint(1001),
        distribution="Cyclic",
        requested_cpus=22,
        requested_memory_per_node=2 * 2**20,
        start_time="2025-02-01T10:00:00+01:00",
        exit_code=3,
        sacct=SacctData(
            AllocTRES="cpu=1",
            AveCPU=86400 + 2 * 3600 + 3 * 60 + 4,
            AveDiskRead=1,
            AveRSS=1536,
            ElapsedRaw=113062,
            UserCPU=14 * 60 + 50,
        ),
    )


def test_limit_of_sacct_is_in_minutes_for_any_profile() -> None:
    """Also if the profile has seconds."""
    for profile in ("spec", "sonar"):
        job = one(envelope_of(OLD_JOB), profile=profile).data.attributes.slurm_jobs[0]
        assert job.time_limit == ExtendedUint(20160)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ExitCode", "0:15"),
        ("Start", "2025-02-01T10:00:00"),
        ("TimelimitRaw", "soon"),
        ("NodeList", "None assigned"),
        ("ReqMem", "4Gn"),
        ("ReqCPUS", "\uff11"),
        ("ElapsedRaw", "99999999999999999999"),
        ("AveRSS", "999999999999999P"),
        ("AveCPU", "1:2:3:4"),
    ],
)
def test_unparsable_column_stays_unknown_field(name: str, value: str) -> None:
    """Nothing is lost or silently set to zero."""
    envelope = one(envelope_of({**OLD_JOB, name: value}))
    assert envelope.unknown == {("data", "attributes", "slurm_jobs", 0, name): value}


def test_invalid_job_number_stays_unknown_field() -> None:
    """A strict decoder rejects such a job, a tolerant one keeps it."""
    envelope = one(envelope_of({**OLD_JOB, "JobID": "x"}))
    assert envelope.data.attributes.slurm_jobs[0].job_id == 0
    assert envelope.unknown[("data", "attributes", "slurm_jobs", 0, "JobID")] == "x"
