"""Rules beyond the types, as a strict decoder checks them."""

from typing import Any

import pytest

from ccpipe.formats.sonar import decode
from tests.formats.sonar import examples
from tests.formats.sonar.examples import bad, changed, one
from tests.paths import TEST_DATA


def test_strict_decoder_accepts_deviations_of_sonar() -> None:
    """+00:00 for Z and "CANCELLED by", if the producer or the profile is Sonar."""
    cancelled = changed(
        examples.JOBS, "data.attributes.slurm_jobs.0.job_state", "CANCELLED by 1000"
    )
    for text in (*examples.ALL, cancelled):
        one(text, strict=True)
    for text, path in (
        (examples.SAMPLE, "$.data.attributes.system.boot"),
        (cancelled, "$.data.attributes.slurm_jobs[0].job_state"),
    ):
        assert bad(text, strict=True, profile="spec").path == path
        other = changed(text, "meta.producer", "other")
        assert bad(other, strict=True).path == path
        one(other, strict=True, profile="sonar")


RULES = [
    (examples.CLUSTER, "meta.producer", "", "NonemptyString"),
    (examples.SAMPLE, "meta.version", ..., "NonemptyString"),
    (examples.SAMPLE, "meta.attrs", [{"key": "", "value": "v"}], "NonemptyString"),
    (examples.SAMPLE, "data.attributes.time", "", "Timestamp"),
    (examples.SAMPLE, "data.attributes.time", "2025-04-07T14:17:11.5+02:00", "Timestamp"),
    (examples.SAMPLE, "data.attributes.cluster", ..., "Hostname"),
    (examples.SAMPLE, "data.attributes.node", "a b", "Hostname"),
    (examples.SAMPLE, "data.attributes.node", "-a", "Hostname"),
    (examples.SAMPLE, "data.attributes.node", "nød", "Hostname"),
    (examples.SAMPLE, "data.attributes.jobs.1.user", "", "NonemptyString"),
    (examples.SAMPLE, "data.attributes.jobs.0.job", 0, "must not be zero if epoch is zero"),
    (examples.SAMPLE, "data.attributes.system.gpus.0.uuid", "", "NonemptyString"),
    (examples.SYSINFO, "data.attributes.sockets", 0, "NonzeroUint"),
    (examples.SYSINFO, "data.attributes.distances", [[10], [10, 11]], "square"),
    (examples.SYSINFO, "data.attributes.topo_svg", "<svg>", "base64"),
    (examples.JOBS, "data.attributes.slurm_jobs.0.job_id", 0, "NonzeroUint"),
    (examples.SAMPLE, "meta.format", 1, "must be 0"),
    (examples.SAMPLE, "meta.version", "0.19", "semantic version"),
    (examples.SAMPLE, "meta.version", "1.02.3", "semantic version"),
    (examples.JOBS, "data.attributes.slurm_jobs.1.array_task_id", 3, "zero if array_job_id is"),
    (examples.JOBS, "data.attributes.slurm_jobs.0.het_job_offset", 3, "zero if het_job_id is"),
    (examples.JOBS, "data.attributes.slurm_jobs.0.nodes", ["c1", "None assigned"], "of nodes"),
    (examples.JOBS, "data.attributes.slurm_jobs.0.end_time", "soon", "OptionalTimestamp"),
    (examples.JOBS, "data.attributes.slurm_jobs.0.job_state", "CANCELED by 3", "one of PENDING"),
    (examples.CLUSTER, "data.attributes.partitions.0.name", "", "NonemptyString"),
    (examples.CLUSTER, "data.attributes.partitions.0.nodes.0", "c[3-1]", "NodeRange"),
    (examples.CLUSTER, "data.attributes.partitions.0.nodes.0", "c_1", "NodeRange"),
    (examples.CLUSTER, "data.attributes.partitions.0.nodes.0", "cö[1-2]", "NodeRange"),
    (examples.CLUSTER, "data.attributes.nodes.1.names", [], "must not be empty"),
    (examples.CLUSTER, "data.attributes.nodes.1.states", ["idle"], "upper case"),
    (examples.ERROR, "errors.0.detail", "", "NonemptyString"),
]


@pytest.mark.parametrize(("text", "path", "value", "rule"), RULES)
def test_strict_decoder_reports_path_rule_and_value(
    text: str, path: str, value: Any, rule: str
) -> None:
    """Each rule of the specification, broken once."""
    broken = changed(text, path, value)
    rejected = bad(broken, strict=True)
    (problem,) = rejected.problems
    where = "$" + "".join(f"[{key}]" if key.isdigit() else f".{key}" for key in path.split("."))
    assert problem.path.startswith(where)
    assert rule in problem.rule
    if isinstance(value, str):
        assert problem.value == value


def test_strict_decoder_accepts_recorded_output_of_sonar() -> None:
    """A sample, a sysinfo and errors of Sonar 0.19.0-devel (335b157), of 22 November 2026.

    A recording: no package brings Sonar, so tests cannot run it.
    """
    recorded = (TEST_DATA / "sonar/recorded.json").read_bytes()
    accepted = decode(recorded, strict=True)
    assert accepted.rejected == []
    sample, sysinfo, errors = accepted
    assert sample.data is not None
    assert sample.data.type == "sample"
    assert sysinfo.data is not None
    assert sysinfo.data.type == "sysinfo"
    assert errors.errors is not None
    refused = decode(recorded, strict=True, profile="spec")
    assert len(refused.rejected) == 3


def test_strict_decoder_reports_all_problems_of_envelope() -> None:
    broken = changed(examples.JOBS, "data.attributes.slurm_jobs.0.job_id", 0)
    broken = changed(broken, "data.attributes.time", "")
    broken = changed(broken, "data.attributes.software", [])
    assert [problem.path for problem in bad(broken, strict=True).problems] == [
        "$.data.attributes.software",
        "$.data.attributes.time",
        "$.data.attributes.slurm_jobs[0].job_id",
    ]


@pytest.mark.parametrize(
    ("old", "new", "path"),
    [
        ('"producer":', '"producer":"x","producer":', "$.meta.producer"),
        ('"user":', '"user":"x","user":', "$.data.attributes.jobs[0].user"),
        ('{"meta":', '{"meta":{},"meta":', "$.meta"),
    ],
)
def test_strict_decoder_rejects_duplicate_keys(old: str, new: str, path: str) -> None:
    """A tolerant decoder uses the last value, like Go; JSON leaves it open."""
    text = examples.SAMPLE.replace(old, new, 1)
    problem = bad(text, strict=True).problems[0]
    assert (problem.path, problem.rule) == (path, "key must not be repeated")
    assert one(text) == one(examples.SAMPLE)


def test_strict_decoder_rejects_duplicate_attributes() -> None:
    pairs = [{"key": "k", "value": "1"}, {"key": "k"}]
    assert bad(changed(examples.ERROR, "meta.attrs", pairs), strict=True).path == (
        "$.meta.attrs[1].key"
    )


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("{}", "must have data or errors"),
        ('{"meta":{"producer":"p","version":"1.0.0"},"errors":[]}', "must have data or errors"),
        (examples.CLUSTER[:-1] + "," + examples.ERROR.partition(',"errors"')[2].join(
            ['"errors"', ""]), "must not have both data and errors"),
    ],
)  # fmt: skip
def test_decoder_requires_either_data_or_errors(text: str, rule: str, strict: bool) -> None:
    assert rule in {problem.rule for problem in bad(text, strict=strict).problems}
