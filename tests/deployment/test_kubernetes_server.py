"""bridges/kubernetes on a real API server: strict validation, Pod Security, KEDA's definitions."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts.kubernetes_programs import crds
from tests.deployment.test_kubernetes import OBJECTS, WORKLOADS, called, kustomized, site_copy
from tests.paths import ROOT
from tests.servers.kubernetes import ApiServer


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with ApiServer(tmp_path_factory.mktemp("kubernetes") / "server") as server:
        page = (ROOT / "docs/operations/kubernetes.md").read_text()
        [namespace] = re.findall(r"^kubectl apply -f (\S+)$", page, re.MULTILINE)
        label = "pod-security.kubernetes.io/enforce=restricted"
        for words in (
            ("apply", "-f", str(ROOT / namespace)),
            ("create", "namespace", "restricted"),
            ("label", "namespace", "restricted", label),
        ):
            done = server.kubectl(*words)
            assert done.returncode == 0, done.stderr
        yield server


@pytest.fixture(scope="module")
def keda(server: ApiServer) -> ApiServer:
    """Define KEDA's objects, whose file `scripts/kubernetes_cluster.py install` fetches."""
    if not crds().is_file():
        pytest.skip(f"no {crds()}: scripts/kubernetes_cluster.py install, as root")
    done = server.kubectl("create", "-f", str(crds()))
    assert done.returncode == 0, done.stderr
    name = "crd/scaledobjects.keda.sh"
    done = server.kubectl("wait", "--for=condition=Established", name, "--timeout=120s")
    assert done.returncode == 0, done.stderr
    return server


def pod_of(workload: dict[str, Any]) -> dict[str, Any]:
    """Return a pod as the workload's controller would make it."""
    template = workload["spec"]["template"]
    metadata = {**template["metadata"], "name": workload["metadata"]["name"]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


def test_server_accepts_every_object_with_strict_validation(keda: ApiServer) -> None:
    """Unknown and repeated keys are errors; it also checks values, which schemas do not."""
    keda.apply(OBJECTS, "--namespace=ccpipe", "--dry-run=server")


def test_server_rejects_misspelt_key(server: ApiServer) -> None:
    """So that the test above would find one."""
    broken = {**WORKLOADS[0], "spec": {**WORKLOADS[0]["spec"], "replica": 1}}
    with pytest.raises(AssertionError, match=r'unknown field "(spec\.)?replica"'):
        server.apply([broken], "--namespace=ccpipe", "--dry-run=server")


def test_second_apply_changes_nothing(keda: ApiServer, tmp_path: Path) -> None:
    """Every object is in the form in which the server stores it: it says "unchanged" of each."""
    objects = kustomized(site_copy(tmp_path))
    first = keda.apply(objects)
    assert len(first) == len(objects)
    [namespace] = [each for each in objects if each["kind"] == "Namespace"]
    done = keda.kubectl("apply", "-f", "-", stdin=json.dumps(namespace))
    assert done.stderr == ""  # the page applies it before, so that nothing is missing
    second = keda.apply(objects)
    assert [line for line in second if not line.endswith(" unchanged")] == []


@pytest.mark.parametrize("each", WORKLOADS, ids=called)
def test_pods_run_at_their_pod_security_level(server: ApiServer, each: dict[str, Any]) -> None:
    """Only the publisher, which sees the host, needs more than `restricted`."""
    pod = pod_of(each)
    if each["kind"] == "DaemonSet":
        with pytest.raises(AssertionError, match="violates PodSecurity"):
            server.apply([pod], "--namespace=restricted", "--dry-run=server")
        server.apply([pod], "--namespace=ccpipe", "--dry-run=server")
    else:
        server.apply([pod], "--namespace=restricted", "--dry-run=server")
