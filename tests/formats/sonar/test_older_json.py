"""Sonar's old JSON format: flat objects become envelopes."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.formats.sonar import ExtendedUint, SampleJob, SampleProcess, SampleProcessGpu, decode
from tests.formats.sonar.examples import bad, one

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


def test_a_sample() -> None:
    """Processes by job; one without a job stands alone; cards share what a process does evenly."""
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
def test_a_performance_state_is_what_it_says(profile: str) -> None:
    """Whatever numbers the reader expects: the old format has none of both."""
    envelope = one(json.dumps(SAMPLE), profile=profile)
    assert envelope.data.attributes.system.gpus[0].performance_state == ExtendedUint(8)


def test_a_node() -> None:
    """Processors are read off the description where their number agrees."""
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


def test_jobs() -> None:
    """With sacct's columns; they are dated by the latest time that they mention."""
    job = {"JobID": "7", "JobIDRaw": "7", "State": "COMPLETED", "TimelimitRaw": "90",
           "Submit": "2025-03-08T13:49:06+01:00", "Start": "2025-03-08T18:00:00+01:00",
           "End": "2025-03-08T17:30:00+00:00"}  # fmt: skip
    jobs = one(json.dumps({"version": "0.13.0", "jobs": [job]})).data.attributes
    assert jobs.time == "2025-03-08T17:30:00+00:00"
    (read,) = jobs.slurm_jobs
    assert (read.job_id, read.job_state, read.time_limit) == (7, "COMPLETED", ExtendedUint(90))


def test_errors() -> None:
    """They become an envelope of errors."""
    envelope = one('{"v":"0.13.0","error":"No can do","timestamp":"2025-03-08T13:49:06+01:00"}')
    (error,) = envelope.errors
    assert (error.detail, error.time) == ("No can do", "2025-03-08T13:49:06+01:00")


def test_a_strict_decoder_refuses_the_old_format() -> None:
    """The specification does not know it."""
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
def test_any_value_gives_an_envelope_or_names_what_is_wrong(value: Any) -> None:
    """No shape breaks it."""
    decoded = decode(json.dumps(value).encode())
    assert len(decoded) + len(decoded.rejected) >= 1
