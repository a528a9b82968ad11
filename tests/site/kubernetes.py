"""ccpipe on a real Kubernetes: the shipped manifests, a broker and a store in pods of their own."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode

from ccpipe.bus.nats.server import server_program
from scripts.image_archive import with_libraries, write_archive
from scripts.kubernetes_cluster import NAMESPACE, SIMULATED, Cluster
from tests.cli.command import ccpipe
from tests.conftest import program
from tests.paths import ROOT
from tests.site import numbered

STORE = "http://127.0.0.1:8428"
SECONDS = 300
"""How long anything may take on a machine that is busy."""
BRIDGE = "deployment/bridge-victoriametrics"
BRIDGE_PODS = "app.kubernetes.io/component=bridge-victoriametrics"


def image_of(program: Path, directory: Path, name: str) -> Path:
    """Return an archive of an image with one program of this machine."""
    archive = directory / f"{name}.tar"
    command = str(program)
    write_archive(archive, f"localhost/{name}:test", with_libraries(program), [command])
    return archive


def archives(directory: Path, image: Path) -> list[Path]:
    """Return the images of the cluster: ccpipe's, the broker's and the store's."""
    store = program("victoria-metrics", "victoria-metrics")
    broker = Path(server_program()).resolve()
    return [
        image, image_of(broker, directory, "nats"), image_of(store, directory, "victoriametrics")
    ]  # fmt: skip


def service(name: str, args: Sequence[str], directory: Path) -> dict[str, Any]:
    """Return a Deployment of a program at the node's address, with files that outlive its pods."""
    labels = {"app.kubernetes.io/name": name}
    container = {
        "name": name,
        "image": f"localhost/{name}:test",
        "args": list(args),
        "securityContext": {"runAsUser": 0},
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    pod = {
        "hostNetwork": True,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 5,
        "containers": [container],
        "volumes": [{"name": "data", "hostPath": {"path": str(directory)}}],
    }
    spec = {
        "replicas": 1,
        "strategy": {"type": "Recreate"},
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    return {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec
    }  # fmt: skip


class SiteOnKubernetes:
    """A site of one node, deployed as docs/operations/kubernetes.md says."""

    def __init__(self, cluster: Cluster, directory: Path, image: str) -> None:
        self.cluster = cluster
        self.directory = directory
        self.image = image
        self.keys = directory / "keys"
        self.next = 0
        """The first number that was not published yet."""

    def kubectl(self, *words: str, stdin: str = "") -> str:
        try:
            return self.cluster.run("kubectl", f"--namespace={NAMESPACE}", *words, stdin=stdin)
        except subprocess.CalledProcessError as error:
            raise AssertionError(f"kubectl {' '.join(words)}: {error.stderr}") from None

    def deploy(self) -> None:
        """Follow the page; the broker and the store come from Deployments of the test."""
        done = ccpipe("auth", "init", self.keys, "--cluster", "local", "--node", "n1")
        assert done.code == 0, done.err
        self.kubectl("apply", "-f", str(ROOT / "bridges/kubernetes/base/namespace.yaml"))
        self._make_secrets()
        broker, store = self.directory / "broker", self.directory / "store"
        broker.mkdir()
        store.mkdir()
        conf = (self.keys / "nats.conf").read_text().replace('"/var/lib/nats"', '"/data/streams"')
        (broker / "nats.conf").write_text(conf)
        flags = ["-storageDataPath=/data", "-influxSkipSingleField", "-retentionPeriod=100y"]
        for each in (
            service("nats", ["-c", "/data/nats.conf"], broker),
            service("victoriametrics", flags, store),
        ):
            self.kubectl("apply", "-f", "-", stdin=json.dumps(each))
        self.kubectl("apply", "-k", str(self._site()))

    def _make_secrets(self) -> None:
        (self.directory / "tokens").write_text("secret-token admin root\n")
        files = {
            "ccpipe-bridge-key": self.keys / "nkeys/bridge/bridge.nk",
            "ccpipe-viewer-key": self.keys / "nkeys/viewer/viewer.nk",
            "ccpipe-dashboard": self.directory / "tokens",
            "ccpipe-node-keys": self.keys / "nkeys/node",
        }
        for name, path in files.items():
            self.kubectl("create", "secret", "generic", name, f"--from-file={path}")

    def _site(self) -> Path:
        """Return a copy of the shipped site with our image and a sample each second."""
        shipped = ROOT / "bridges/kubernetes"
        tree = self.directory / "manifests"
        shutil.copytree(shipped, tree)
        file = tree / "site/kustomization.yaml"
        name, _, tag = self.image.rpartition(":")
        text = re.sub(r"newName: \S+", f"newName: {name}", file.read_text())
        text = text.replace("newTag: latest", f"newTag: {tag}")
        interval = {"name": "CCPIPE_PUBLISH__INTERVAL", "value": "1s"}
        container = {"name": "publisher", "env": [interval]}
        patch = {
            "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "publisher"},
            "spec": {"template": {"spec": {"containers": [container]}}},
        }  # fmt: skip
        (tree / "site/interval.json").write_text(json.dumps(patch))
        file.write_text(f"{text}\npatches:\n  - path: interval.json\n")
        return tree / "site"

    def wait_ready(self) -> None:
        """Wait until every pod of the site is ready."""
        for each in ("deployment/nats", "deployment/victoriametrics", BRIDGE,
                     "deployment/dashboard", "daemonset/publisher"):  # fmt: skip
            self.kubectl("rollout", "status", each, f"--timeout={SECONDS}s")

    def add_simulated(self, names: Sequence[str]) -> None:
        """Add nodes that kwok simulates, and wait until they are ready."""
        key, _, value = SIMULATED.partition("=")
        size = {"cpu": "8", "memory": "32Gi", "pods": "50"}
        nodes = [
            {
                "apiVersion": "v1", "kind": "Node",
                "metadata": {"name": name, "labels": {key: value}},
                "status": {"allocatable": size, "capacity": size},
            }
            for name in names
        ]  # fmt: skip
        listed = {"apiVersion": "v1", "kind": "List", "items": nodes}
        self.kubectl("apply", "-f", "-", stdin=json.dumps(listed))
        wanted = ("--for=condition=Ready", f"--selector={SIMULATED}", f"--timeout={SECONDS}s")
        self.kubectl("wait", "node", *wanted)

    def drain(self, node: str) -> None:
        """Evict the bridge from a node, which takes no more pods."""
        options = ("--ignore-daemonsets", "--delete-emptydir-data")
        self.kubectl("drain", node, *options, f"--pod-selector={BRIDGE_PODS}")

    def bridge_node(self) -> str:
        """Return the node of the bridge's running pod; empty if there is none."""
        path = "jsonpath={.items[*].spec.nodeName}"
        running = "--field-selector=status.phase=Running"
        words = ("get", "pods", f"--selector={BRIDGE_PODS}", running, "-o", path)
        return self.kubectl(*words).strip()

    def publish(self, count: int, rate: int) -> "Publishing":
        """Publish numbered lines from the node, as a program on it."""
        first, self.next = self.next, self.next + count
        config = self.directory / "node.toml"
        text = (ROOT / "bridges/kubernetes/site/ccpipe.toml").read_text()
        key = self.keys / "nkeys/node/n1.nk"
        server = 'servers = ["nats://127.0.0.1:4222"]'
        text = re.sub(r"servers = .*", f'{server}\nnkey_file = "{key}"', text)
        config.write_text(f'hostname = "n1"\n{text}')
        numbers = (f"{each}" for each in (first, count, rate))
        words = [sys.executable, numbered.__file__, str(config), *numbers]
        process = subprocess.Popen(self.cluster.command(*words), env=self.cluster.environment())
        return Publishing(process)

    def stored(self, metric: str = numbered.NAME) -> Counter[float]:
        """Return how often the store has each value of a metric."""
        found: Counter[float] = Counter()
        for line in self.query("export", {"match[]": metric}).splitlines():
            found.update(json.loads(line)["values"])
        return found

    def query(self, path: str, parameters: dict[str, str]) -> str:
        """Return the store's answer, of which everything is visible."""
        self._get(f"{STORE}/internal/force_flush")
        return self._get(f"{STORE}/api/v1/{path}?{urlencode(parameters)}")

    def metrics(self, port: int = 9400) -> str:
        """Return the publisher's own metrics."""
        return self._get(f"http://127.0.0.1:{port}/metrics")

    def _get(self, url: str) -> str:
        code = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1]).read().decode())"
        return self.cluster.run(sys.executable, "-c", code, url).strip()

    def all_stored(self) -> bool:
        """Return whether the store has every number that was published."""
        return len(self.stored()) == self.next

    def doubled(self) -> int:
        """Return how many lines the store has more than once."""
        return sum(count - 1 for count in self.stored().values())

    def eventually(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + SECONDS
        while not condition():
            assert time.monotonic() < deadline, self.state()
            time.sleep(1)

    def state(self) -> str:
        """Return what explains a failure."""
        pods = self.kubectl("get", "pods", "-o", "wide")
        bridge = self.kubectl("logs", BRIDGE, "--tail=20")
        return f"{len(self.stored())} of {self.next} numbers are stored\n{pods}\n{bridge}"


class Publishing:
    """A program that publishes numbered lines; it ends when the broker has them."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self.process = process

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self.process.kill()
        code = self.process.wait(SECONDS)
        assert kind is not None or code == os.EX_OK
