"""The shipped manifests on a real Kubernetes: nothing is lost by what happens to pods.

The image of bridges/Dockerfile is built; $CCPIPE_IMAGE_ARCHIVE names one to take instead, a file of
`podman save`.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ccpipe import __version__
from scripts.kubernetes_cluster import NODE, missing, running
from tests.site.kubernetes import BRIDGE, BRIDGE_PODS, SECONDS, SiteOnKubernetes, archives

pytestmark = [pytest.mark.site, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def site(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SiteOnKubernetes]:
    if reason := missing():
        pytest.skip(reason)
    image: Path = request.getfixturevalue("image_archive")
    directory = tmp_path_factory.mktemp("kubernetes")
    with running(directory / "cluster", archives(directory, image)) as cluster:
        site = SiteOnKubernetes(cluster, directory, f"localhost/ccpipe:{__version__}")
        site.deploy()
        site.wait_ready()
        yield site


def test_metrics_of_node_reach_store(site: SiteOnKubernetes) -> None:
    """Publisher, broker, bridge and store as the page deploys them; the dashboard is ready, too."""
    site.eventually(lambda: len(site.stored('cpu_load{hostname="n1"}')) > 0)
    pods = json.loads(site.kubectl("get", "pods", "-o", "json"))["items"]
    for pod in pods:
        ready = {row["type"]: row["status"] for row in pod["status"]["conditions"]}["Ready"]
        assert ready == "True", pod["metadata"]["name"]


def test_second_apply_changes_nothing(site: SiteOnKubernetes) -> None:
    """It says so of each object."""
    again = site.kubectl("apply", "-k", str(site.directory / "manifests/site"))
    assert [line for line in again.splitlines() if not line.endswith(" unchanged")] == []


def test_rolling_update_loses_and_doubles_nothing(site: SiteOnKubernetes) -> None:
    """The old bridge acknowledges what it wrote before it ends, the new one has the rest."""
    before = site.doubled()
    with site.publish(4000, rate=100):
        site.kubectl("rollout", "restart", BRIDGE)
        site.kubectl("rollout", "status", BRIDGE, f"--timeout={SECONDS}s")
    site.eventually(site.all_stored)
    assert site.doubled() == before


def test_killed_pod_loses_nothing(site: SiteOnKubernetes) -> None:
    """What it had written and not yet acknowledged is written again."""
    with site.publish(4000, rate=100):
        site.eventually(lambda: len(site.stored()) > site.next - 3500)
        site.kubectl("delete", "pod", f"--selector={BRIDGE_PODS}", "--force", "--grace-period=0")
    site.eventually(site.all_stored)


def test_scaling_loses_and_doubles_nothing(site: SiteOnKubernetes) -> None:
    """From one bridge to four and back, they share one consumer."""
    before = site.doubled()
    with site.publish(6000, rate=100):
        for replicas in (4, 1):
            site.kubectl("scale", BRIDGE, f"--replicas={replicas}")
            site.kubectl("rollout", "status", BRIDGE, f"--timeout={SECONDS}s")
    site.eventually(site.all_stored)
    assert site.doubled() == before


def test_drained_node_loses_and_doubles_nothing(site: SiteOnKubernetes) -> None:
    """Its bridge is evicted, waits while there is no other node, and continues after that."""
    before = site.doubled()
    with site.publish(2000, rate=100):
        site.drain(NODE)
        site.kubectl("uncordon", NODE)
        site.kubectl("rollout", "status", BRIDGE, f"--timeout={SECONDS}s")
    site.eventually(site.all_stored)
    assert site.doubled() == before


def test_broker_away_loses_nothing(site: SiteOnKubernetes) -> None:
    """The publisher spools meanwhile and stays ready; every slot that it sampled arrives."""
    before = site.doubled()
    with site.publish(2000, rate=100):
        site.kubectl("scale", "deployment/nats", "--replicas=0")
        site.eventually(lambda: value(site.metrics(), "ccpipe_spooled_messages") > 3)
        ready = "jsonpath={.status.numberReady}"
        assert site.kubectl("get", "daemonset/publisher", "-o", ready) == "1"
        site.kubectl("scale", "deployment/nats", "--replicas=1")
    site.eventually(site.all_stored)
    site.eventually(lambda: value(site.metrics(), "ccpipe_spooled_messages") == 0)
    assert site.doubled() == before
    missed = value(site.metrics(), 'ccpipe_missed_slots_total{component="Sampler"}', default=0)
    site.eventually(lambda: gaps(site) <= missed)


def test_publisher_with_wrong_broker_is_not_ready(site: SiteOnKubernetes) -> None:
    """Its rollout stops, which a deployment tool sees; with the right address it goes on."""
    wrong = "CCPIPE_BUS__SERVERS=nats://nats.ccpipe.svc:4999"
    site.kubectl("set", "env", "daemonset/publisher", wrong)
    with pytest.raises(AssertionError, match="timed out"):
        site.kubectl("rollout", "status", "daemonset/publisher", "--timeout=40s")
    site.kubectl("set", "env", "daemonset/publisher", "CCPIPE_BUS__SERVERS-")
    site.kubectl("rollout", "status", "daemonset/publisher", f"--timeout={SECONDS}s")


@pytest.fixture(scope="module")
def simulated_nodes(site: SiteOnKubernetes) -> list[str]:
    """Add nodes whose pods kwok reports as running, for the tests from here on."""
    names = [f"simulated{number}" for number in range(1, 21)]
    site.add_simulated(names)
    return names


def test_publisher_is_scheduled_on_each_node(
    site: SiteOnKubernetes, simulated_nodes: list[str]
) -> None:
    """Also on those that join later."""
    count = str(len(simulated_nodes) + 1)
    ready = "jsonpath={.status.numberReady}"
    site.eventually(lambda: site.kubectl("get", "daemonset/publisher", "-o", ready) == count)


def test_bridge_moves_between_nodes_and_loses_nothing(
    site: SiteOnKubernetes, simulated_nodes: list[str]
) -> None:
    """Draining its node ends it there; another node continues with what was not acknowledged."""
    before = site.doubled()
    with site.publish(2000, rate=100):
        site.kubectl("cordon", NODE)
        site.drain(NODE)
        site.eventually(lambda: site.bridge_node() in simulated_nodes)
        site.kubectl("uncordon", NODE)
        for name in simulated_nodes:  # on which no process writes
            site.kubectl("cordon", name)
        site.drain(site.bridge_node())
        site.eventually(lambda: site.bridge_node() == NODE)
    site.eventually(site.all_stored)
    assert site.doubled() == before


def value(page: str, name: str, default: float | None = None) -> float:
    """Return a value of a page of metrics; without one the default."""
    found = re.search(rf"^{re.escape(name)} (\S+)$", page, re.MULTILINE)
    if found is None:
        assert default is not None, page
        return default
    return float(found[1])


def gaps(site: SiteOnKubernetes) -> int:
    """Return how many of the publisher's slots, of a second each, are not in the store."""
    text = site.query("export", {"match[]": 'cpu_load{hostname="n1"}'})
    slots: set[int] = set()
    for line in text.splitlines():
        slots.update(stamp // 1000 for stamp in json.loads(line)["timestamps"])
    return max(slots) - min(slots) + 1 - len(slots)
