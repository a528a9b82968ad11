"""Slurm's CPUs as Linux numbers them, from cc-backend's cluster.json."""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from ccpipe.errors import ConfigError
from ccpipe.formats.sonar.envelopes import Envelopes
from ccpipe.jobs import Job, JobNode
from ccpipe.translate.cluster_nodes import NodeTopology, node_state_payloads, read_topology
from ccpipe.translate.sonar.sonar_to_cc import SonarToCc
from tests.translate.sonar.test_sonar_to_cc_jobs import RUNNING, envelope

SECOND_THREADS_LAST = {
    "socket": [[0, 1, 4, 5], [2, 3, 6, 7]],
    "core": [[0, 4], [1, 5], [2, 6], [3, 7]],
    "accelerators": [{"id": "00000000:49:00.0", "type": "Nvidia GPU", "model": "A100"}],
}
SOCKETS_IN_TURN = {"socket": [[1, 3], [0, 2]], "core": [[3], [2], [1], [0]]}


def cluster_json(directory: Path, text: str | None = None) -> str:
    parts = [("a[1-2]", SECOND_THREADS_LAST), ("b1", SOCKETS_IN_TURN)]
    subs = [{"name": n, "nodes": n, "topology": topology, "smt": 2} for n, topology in parts]
    path = directory / "cluster.json"
    path.write_text(text or json.dumps({"name": "fox", "subClusters": subs}))
    return str(path)


def test_order_of_cpus_matches_slurmd(tmp_path: Path) -> None:
    """By socket, core and thread, each in the order of its first number."""
    assert read_topology(cluster_json(tmp_path)) == {
        **dict.fromkeys(
            ("a1", "a2"), NodeTopology((0, 4, 1, 5, 2, 6, 3, 7), ("00000000:49:00.0",))
        ),
        "b1": NodeTopology((0, 2, 1, 3), ()),
    }


@pytest.mark.parametrize("text", ["{", "[]", '{"subClusters": [{"nodes": "a["}]}'])
def test_reader_names_invalid_file(tmp_path: Path, text: str) -> None:
    """Before the bridge starts, as a missing one is."""
    with pytest.raises(ConfigError, match=r"cluster_json: .*cluster\.json: "):
        SonarToCc(cluster_json=cluster_json(tmp_path, text))
    with pytest.raises(ConfigError, match="No such file"):
        SonarToCc(cluster_json=str(tmp_path / "none"))


def test_jobs_have_hardware_threads_of_linux(tmp_path: Path) -> None:
    """None where the topology has fewer than Slurm; Slurm's own for a node that is not in it."""
    translator = SonarToCc(envelopes=False, cluster_json=cluster_json(tmp_path))
    detail = (
        "Nodes=a[1-2] CPU_IDs=2-3,6 Mem=600 GRES=gpu:1(IDX:0)",
        "Nodes=b1 CPU_IDs=4 Mem=600 GRES=",
        "Nodes=c1 CPU_IDs=2 Mem=600 GRES=",
    )
    nodes = ("a[1-2]", "b1", "c1")
    job = replace(RUNNING, user_name="ann", nodes=nodes, gres_detail=detail)
    (start,) = [
        json.loads(str(message.value)) for message in translator.feed(Envelopes([envelope(9, job)]))
    ]
    accelerators = ["00000000:49:00.0"]
    assert start["resources"] == [
        {"hostname": "a1", "hwthreads": [1, 3, 5], "accelerators": accelerators},
        {"hostname": "a2", "hwthreads": [1, 3, 5], "accelerators": accelerators},
        {"hostname": "b1"},
        {"hostname": "c1", "hwthreads": [2]},
    ]


def test_node_use_omits_numbers_unknown_for_one_job() -> None:
    """The sum would be too small."""
    known, unknown = JobNode("a", cpus=2, gpus=1, memory=100), JobNode("a", cpus=1)
    jobs = [Job(cluster="fox", id=n, nodes=(node,)) for n, node in enumerate((known, unknown), 1)]
    (payload,) = node_state_payloads("fox", {"a": ["mixed"]}, jobs)
    assert json.loads(payload)["nodes"] == [
        {"hostname": "a", "states": ["mixed"], "cpusAllocated": 3, "jobsRunning": 2}
    ]
