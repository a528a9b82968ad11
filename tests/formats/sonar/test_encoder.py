"""Encoder: one deterministic line per envelope, as each profile's reader requires it."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ccpipe.errors import EncodeError
from ccpipe.formats import sonar
from tests.formats.sonar import examples
from tests.formats.sonar.examples import changed, one
from tests.formats.sonar.strategies import envelopes

PROFILES: list[sonar.WriteProfile] = ["spec", "sonar", "jobanalyzer", "slurm-monitor"]
PROGRAMS: list[sonar.WriteProfile] = ["sonar", "jobanalyzer", "slurm-monitor"]


def tree(envelope: sonar.Envelope, profile: sonar.WriteProfile = "spec") -> Any:
    return json.loads(sonar.encode(envelope, profile=profile))


def sample(**process: Any) -> sonar.Envelope:
    jobs = (sonar.SampleJob(job=1, user="u", processes=(sonar.SampleProcess(**process),)),)
    attributes = sonar.SampleAttributes(
        "2025-04-07T14:17:11Z", "fox", "c1", sonar.SampleSystem(), jobs
    )
    return sonar.SampleEnvelope(
        sonar.MetadataObject("ccpipe", "1.2.3"), sonar.SampleData(attributes)
    )


@pytest.mark.parametrize("text", examples.ALL)
def test_encoder_restores_output_of_sonar(text: str) -> None:
    """Field by field, with the profile `sonar` for reading and writing."""
    envelope = one(text, profile="sonar")
    assert tree(envelope, "sonar") == json.loads(text)


def test_encoder_writes_line_in_order_of_specification() -> None:
    """Whatever the order of input; equal envelopes give equal bytes."""
    first = sonar.encode(one(examples.SAMPLE))
    assert first.count(b"\n") == 1
    assert first.endswith(b"}\n")
    assert list(json.loads(first)["data"]["attributes"]) == [
        "time", "cluster", "node", "system", "jobs",
    ]  # fmt: skip
    backwards = json.dumps(_reversed(json.loads(examples.SAMPLE)))
    assert sonar.encode(one(backwards)) == first


def _reversed(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _reversed(value[key]) for key in reversed(value)}
    return [_reversed(item) for item in value] if isinstance(value, list) else value


def test_encoder_keeps_empty_array_of_heartbeat() -> None:
    """It means that the node is idle, in every profile."""
    idle = changed(examples.SAMPLE, "data.attributes.jobs", [])
    none = changed(examples.JOBS, "data.attributes.slurm_jobs", [])
    for profile in PROFILES:
        assert tree(one(idle), profile)["data"]["attributes"]["jobs"] == []
        assert tree(one(none), profile)["data"]["attributes"]["slurm_jobs"] == []


def test_profile_selects_tag_of_jobs() -> None:
    """The specification has "jobs", all programs have "job"."""
    tags = [tree(one(examples.JOBS), profile)["data"]["type"] for profile in PROFILES]
    assert tags == ["jobs", "job", "job", "job"]


def test_encoder_always_writes_first_four_fields_of_job() -> None:
    """The specification requires them in every record."""
    job = tree(one(examples.JOBS))["data"]["attributes"]["slurm_jobs"][1]
    assert list(job)[:4] == ["job_id", "job_step", "job_name", "job_state"]


@pytest.mark.parametrize("profile", PROGRAMS)
def test_profile_writes_limit_in_seconds(profile: sonar.WriteProfile) -> None:
    """UNLIMITED stays 1."""
    jobs = tree(one(examples.JOBS, profile="sonar"), profile)["data"]["attributes"]["slurm_jobs"]
    assert [job["time_limit"] for job in jobs] == [1209602, 1]


@pytest.mark.parametrize("profile", PROGRAMS)
def test_profile_writes_offset_for_z(profile: sonar.WriteProfile) -> None:
    """Sonar writes +00:00; the profile `spec` keeps times unchanged."""
    assert tree(sample(), profile)["data"]["attributes"]["time"] == "2025-04-07T14:17:11+00:00"
    assert tree(sample())["data"]["attributes"]["time"] == "2025-04-07T14:17:11Z"


@pytest.mark.parametrize("profile", PROGRAMS)
def test_profile_writes_floats_without_point_or_exponent(profile: sonar.WriteProfile) -> None:
    """Like Sonar, without loss."""
    written = sonar.encode(sample(cpu_avg=1.0, cpu_util=1e-7), profile=profile)
    assert b'"cpu_avg":1,"cpu_util":0.0000001' in written
    assert sonar.encode(sample(cpu_avg=1e22), profile=profile).count(b"0" * 22) == 1


@pytest.mark.parametrize("profile", PROGRAMS)
def test_profile_writes_only_known_fields_of_meta(profile: sonar.WriteProfile) -> None:
    """slurm-monitor rejects others."""
    text = changed(examples.CLUSTER, "meta.token", "t")
    text = changed(text, "meta.attrs", [{"key": "k"}])
    text = changed(text, "meta.format", 1)
    assert list(tree(one(text), profile)["meta"]) == ["producer", "version"]
    assert tree(one(text))["meta"] == json.loads(text)["meta"]


@pytest.mark.parametrize(
    ("version", "written"),
    [
        ("0.19.0-devel", "0.19.0-devel"),
        ("0.7.0", "0.7.0"),
        ("1.0.0rc1", "1.0.0rc1"),
        ("0.6.9", "0.7.0+0-6-9"),
        ("0.1.0", "0.7.0+0-1-0"),
        ("v1.0.0", "0.7.0+v1-0-0"),
        ("2", "0.7.0+2"),
        ("0.19.0.1", "0.7.0+0-19-0-1"),
    ],
)
def test_profile_jobanalyzer_writes_version_from_0_7(version: str, written: str) -> None:
    """Older versions would make it use the average as utilization."""
    envelope = one(changed(examples.SAMPLE, "meta.version", version))
    assert tree(envelope, "jobanalyzer")["meta"]["version"] == written
    assert tree(envelope, "sonar")["meta"]["version"] == version


def test_profile_writes_zeros_that_readers_require() -> None:
    """Sonar omits an epoch of 0 and a GPU index of 0."""
    for profile, there in (("spec", False), ("sonar", False), ("jobanalyzer", True),
                           ("slurm-monitor", True)):  # fmt: skip
        attributes = tree(one(examples.SAMPLE), profile)["data"]["attributes"]  # type: ignore[arg-type]
        assert ("epoch" in attributes["jobs"][0]) == there
        assert ("index" in attributes["system"]["gpus"][0]) == there
    empty = sonar.ClusterEnvelope(data=sonar.ClusterData(sonar.ClusterAttributes()))
    assert tree(empty, "slurm-monitor")["data"]["attributes"] == {
        "slurm": False, "partitions": [], "nodes": [],
    }  # fmt: skip


REQUIRED_BY_JOBANALYZER = {
    ".meta": "producer version",
    ".sysinfo": "architecture cluster cores_per_socket cpu_model memory node numa_nodes os_name"
    " os_release sockets threads_per_core time",
    ".sysinfo.cards": "index uuid",
    ".sample": "cluster node system time",
    ".sample.errors": "cluster detail node time",
    ".sample.system": "boot",
    ".sample.system.gpus": "index uuid",
    ".sample.system.disks": "major minor name stats",
    ".sample.jobs": "epoch job user",
    ".sample.jobs.processes.gpus": "index uuid",
    ".job": "cluster time",
    ".job.slurm_jobs": "end_time job_id job_state start_time submit_time",
    ".cluster": "cluster time",
    ".cluster.partitions": "name",
}
"""Keys of the structs in Sonar's ``newfmt/types.go``, version 0.18.3, that are not "omitempty"."""


def objects(value: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(value, list):
        for item in value:
            yield from objects(item, path)
    elif isinstance(value, dict):
        yield path, value
        for key, item in value.items():
            yield from objects(item, f"{path}.{key}")


@given(envelopes)
def test_profile_jobanalyzer_writes_required_keys_only(envelope: sonar.Envelope) -> None:
    """Without missing or removed keys; otherwise it responds with 422."""
    try:
        whole = tree(envelope, "jobanalyzer")
    except EncodeError:
        return  # an infinite performance_state
    parts = list(objects(whole["meta"], ".meta"))
    if "data" in whole:
        parts += objects(whole["data"]["attributes"], "." + whole["data"]["type"])
    for path, keys in parts:
        assert set(REQUIRED_BY_JOBANALYZER.get(path, "").split()) <= set(keys), path
        assert not {"gres_detail", "minimum_cpus_per_node"} & set(keys)


def test_profile_slurm_monitor_writes_one_range_per_partition() -> None:
    """It only keeps the last one."""
    partitions = tree(one(examples.CLUSTER), "slurm-monitor")["data"]["attributes"]["partitions"]
    assert [partition["nodes"] for partition in partitions] == [
        ["c1-[5-28]"],
        ["bigmem-[1-2],c1-29"],
    ]


def test_profile_slurm_monitor_rejects_envelope_of_errors() -> None:
    """slurm-monitor would fail on it and lose the message."""
    with pytest.raises(EncodeError, match="slurm-monitor"):
        sonar.encode(one(examples.ERROR), profile="slurm-monitor")


def test_profile_omits_unknown_fields() -> None:
    """Readers reject or drop them."""
    envelope = one(changed(examples.CLUSTER, "data.attributes.zzz", 1))
    found = ["zzz" in tree(envelope, profile)["data"]["attributes"] for profile in PROFILES]
    assert found == [True, True, False, False]


@pytest.mark.parametrize(
    ("process", "reported"),
    [
        ({"pid": -1}, "processes[0].pid: expected `int` >= 0"),
        ({"pid": 2**64}, "processes[0].pid: must be an integer of 64 bits"),
        ({"rolledup": 2**63}, "processes[0].rolledup"),
        ({"cpu_avg": float("nan")}, "processes[0].cpu_avg"),
        ({"cpu_avg": float("inf")}, "processes[0].cpu_avg"),
        ({"cmd": "\ud800"}, "surrogates"),
        ({"cmd": 7}, "processes[0].cmd: expected `str`"),
        ({"cmd": object()}, "JSON"),
    ],
)
@pytest.mark.parametrize("profile", PROFILES)
def test_encoder_names_unrepresentable_value(
    process: dict[str, Any], reported: str, profile: sonar.WriteProfile
) -> None:
    """Only decodable envelopes are written."""
    with pytest.raises(EncodeError, match=reported.replace("[", r"\[").replace("]", r"\]")):
        sonar.encode(sample(**process), profile=profile)


def test_encoder_requires_either_data_or_errors() -> None:
    error = one(examples.ERROR)
    for envelope in (sonar.Envelope(), replace(one(examples.SAMPLE), errors=error.errors)):
        with pytest.raises(EncodeError, match="either data or errors"):
            sonar.encode(envelope)


@pytest.mark.parametrize("path", [("data", "nowhere", "x"), ("meta", "producer", 3)])
def test_encoder_rejects_unknown_field_without_parent(path: tuple[str, ...]) -> None:
    """It is not dropped silently."""
    with pytest.raises(EncodeError, match="unknown field without its parent"):
        sonar.encode(replace(one(examples.CLUSTER), unknown={path: 1}))


def test_encoder_rejects_unknown_field_that_is_not_json() -> None:
    with pytest.raises(EncodeError, match="unknown field"):
        sonar.encode(replace(one(examples.CLUSTER), unknown={("x",): object()}))


def test_profile_sonar_rejects_unrepresentable_numbers() -> None:
    """An infinite state, and a limit in seconds beyond 64 bits."""
    gpus = (sonar.SampleGpu(uuid="g", performance_state=sonar.INFINITE),)
    attributes = sonar.SampleAttributes(
        "2025-04-07T14:17:11Z", "fox", "c1", sonar.SampleSystem(gpus=gpus)
    )
    with pytest.raises(EncodeError, match="performance_state"):
        sonar.encode(sonar.SampleEnvelope(data=sonar.SampleData(attributes)), profile="sonar")
    jobs = (sonar.SlurmJob(job_id=1, time_limit=sonar.ExtendedUint(2**60)),)
    envelope = sonar.JobsEnvelope(data=sonar.JobsData(sonar.JobsAttributes(slurm_jobs=jobs)))
    with pytest.raises(EncodeError, match="time_limit"):
        sonar.encode(envelope, profile="jobanalyzer")


@given(
    envelopes,
    st.sampled_from(["sonar", "ccpipe"]),
    st.sampled_from(["0.19.0", "1.0.0+sonar", "1.0.0+x-spec", "1.0.0+a+spec", "+spec"]),
)
def test_auto_decodes_output_of_spec_and_sonar(
    envelope: sonar.Envelope, producer: str, version: str
) -> None:
    """For any producer: a suffix to the version marks other numbers."""
    meta = sonar.MetadataObject(producer, version)
    envelope = replace(envelope, meta=meta)
    for profile in ("spec", "sonar"):
        try:
            written = sonar.encode(envelope, profile=profile)
        except EncodeError:
            assert profile == "sonar"
            continue
        (read,) = sonar.decode(written)
        again = sonar.encode(read).replace(b'Z"', b'+00:00"')
        assert again == sonar.encode(envelope).replace(b'Z"', b'+00:00"')


def test_encoder_marks_version_only_if_needed() -> None:
    """The version is unchanged if the producer implies the encoding."""
    jobs = one(examples.JOBS)
    ours = replace(jobs, meta=sonar.MetadataObject("ccpipe", "0.1.0"))
    versions = [
        tree(envelope, profile)["meta"]["version"]
        for envelope in (jobs, ours, sample())
        for profile in PROFILES
    ]
    assert versions[:4] == ["0.19.0-devel+spec", "0.19.0-devel", "0.19.0-devel", "0.19.0-devel"]
    assert versions[4:8] == ["0.1.0", "0.1.0+sonar", "0.7.0+0-1-0-sonar", "0.1.0+sonar"]
    assert versions[8:] == ["1.2.3", "1.2.3+sonar", "1.2.3+sonar", "1.2.3+sonar"]


@given(envelopes, st.sampled_from(["ccpipe", "sonar"]))
def test_strict_decoder_accepts_output_of_every_profile(
    envelope: sonar.Envelope, producer: str
) -> None:
    """If the envelope is valid, and without selecting the profile."""
    envelope = replace(envelope, meta=replace(envelope.meta, producer=producer))
    for profile in PROFILES:
        try:
            encoded = sonar.encode(envelope, profile=profile)
        except EncodeError:
            continue
        assert sonar.decode(encoded, strict=True).rejected == []
