#!/usr/bin/env python3
"""A real Kubernetes on this machine: one node, in namespaces of its own.

    scripts/kubernetes_cluster.py install                # once; compiles Kubernetes
    scripts/kubernetes_cluster.py up DIRECTORY [ARCHIVE …]    # imports images of `podman save`
    scripts/kubernetes_cluster.py run DIRECTORY kubectl get nodes     # a command inside
    scripts/kubernetes_cluster.py down DIRECTORY         # ends what `up` started, and nothing else

Needs root. etcd, kube-apiserver, kube-controller-manager, kube-scheduler, the kubelet with
containerd, and dnsmasq run in namespaces of mounts, network and processes, so that nothing of this
machine is changed or reachable; all files are in DIRECTORY. The node n1 has the address 10.99.0.1;
kwok simulates further nodes, those with the label type=simulated, and the pods on them.
There is no kube-proxy: names of Services are the node's address, where pods with the host's network
listen. scripts/kubernetes_programs.py installs the programs.
"""

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from scripts import kubernetes_programs
from scripts.kubernetes_programs import (
    COMPILED,
    PAUSE,
    PROGRAMS,
    SIMULATOR,
    absent,
    environment,
    install,
)

NODE = "n1"
SIMULATED = "type=simulated"
"""Label of the nodes that kwok simulates."""
NAMESPACE = "ccpipe"
"""The names of its Services are the node's address."""
ADDRESS = "10.99.0.1"
SERVER = "https://127.0.0.1:6443"
SECONDS = 300
"""How long the cluster may take until its node is ready."""
CONTROLLERS = ("memory", "cpu", "cpuacct", "cpuset", "pids", "devices", "freezer", "blkio",
               "systemd", "hugetlb", "perf_event", "net_cls", "net_prio")  # fmt: skip
SYSCTLS = {"vm/overcommit_memory": "1", "kernel/panic": "10", "kernel/panic_on_oops": "1"}
"""What the kubelet would set for the whole machine: it finds these values instead."""

KUBECONFIG = """\
apiVersion: v1
kind: Config
clusters: [{{name: test, cluster: {{server: "{server}", insecure-skip-tls-verify: true}}}}]
users: [{{name: admin, user: {{token: {token}}}}}]
contexts: [{{name: test, context: {{cluster: test, user: admin}}}}]
current-context: test
"""

CONTAINERD = """\
version = 2
root = "{directory}/containerd"
state = "/run/containerd/state"
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{directory}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
"""

CNI = """\
{"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "bridge", "bridge": "cni0",
 "isGateway": true, "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.244.0.0/24"}]],
 "routes": [{"dst": "0.0.0.0/0"}]}}]}
"""

KUBELET = """\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {{anonymous: {{enabled: true}}, webhook: {{enabled: false}}}}
authorization: {{mode: AlwaysAllow}}
address: {address}
cgroupDriver: cgroupfs
cgroupRoot: {cgroup}
failCgroupV1: false
failSwapOn: false
enforceNodeAllocatable: []
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
podLogsDir: {directory}/pods
clusterDNS: [{address}]
clusterDomain: cluster.local
resolvConf: {directory}/resolv.conf
featureGates: {{KubeletInUserNamespace: true}}
oomScoreAdj: 0
evictionHard: {{nodefs.available: "1%", imagefs.available: "1%", memory.available: "50Mi"}}
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
nodeStatusUpdateFrequency: 2s
"""


def missing() -> str:
    """Return why a cluster cannot run here; empty if it can."""
    if os.geteuid() != 0:
        return "a Kubernetes cluster needs root"
    if not (names := absent(*PROGRAMS, *COMPILED, SIMULATOR)):
        return ""
    return f"no {', '.join(names)}: scripts/kubernetes_cluster.py install"


class Cluster:
    """The programs of a directory, and how to reach them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.absolute()
        self._process: subprocess.Popen[bytes] | None = None  # if we started it
        self.cgroup = f"/ccpipe-kubernetes-{zlib.crc32(str(self.directory).encode())}"

    def up(self, archives: Sequence[Path] = ()) -> None:
        """Start everything, import images and wait for the node."""
        self._configure()
        with (self.directory / "log/supervisor").open("ab") as log:
            process = self._process = subprocess.Popen(
                ["unshare", "--mount", "--net", "--pid", "--fork", "--mount-proc",
                 "--kill-child", sys.executable, __file__, "supervise", str(self.directory)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                env=environment(),
            )  # fmt: skip
        (self.directory / "pid").write_text(str(process.pid))

        def until(is_ready: Callable[[], bool]) -> None:
            self.wait(lambda: process.poll() is not None or is_ready())
            if process.poll() is not None:
                raise SystemExit(f"the cluster ended: {self.directory}/log")

        until(lambda: self.succeeds("ctr", "version"))
        for archive in (kubernetes_programs.directory() / "pause.tar", *archives):
            self.import_image(archive)
        until(lambda: self.succeeds("kubectl", "get", "serviceaccount/default"))
        ready = ("kubectl", "wait", "--for=condition=Ready", f"node/{NODE}", "--timeout=1s")
        until(lambda: self.succeeds(*ready))

    def down(self) -> None:
        """End everything: with its first process the kernel kills a whole namespace."""
        with contextlib.suppress(OSError, ValueError):
            supervisor = self._supervisor()
            os.kill(self._first(), signal.SIGKILL)
            self.wait(lambda: not _runs(supervisor))
        if self._process is not None:
            self._process.wait()
        for top in Path("/sys/fs/cgroup").glob(f"*{self.cgroup}"):
            groups = sorted((path for path in top.rglob("*") if path.is_dir()), reverse=True)
            for group in (*groups, top):
                group.rmdir()

    def import_image(self, archive: Path) -> None:
        """Make an image known to the node, which has no registry to pull from."""
        self.run("ctr", "--namespace", "k8s.io", "images", "import", str(archive))

    def succeeds(self, *words: str) -> bool:
        """Return whether a command in the cluster's namespaces succeeds."""
        try:
            self.run(*words)
        except (OSError, subprocess.CalledProcessError):
            return False
        return True

    def run(self, *words: str, stdin: str = "", timeout: float = 300) -> str:
        """Return the stdout of a command in the cluster's namespaces, with its kubeconfig."""
        inside = self.command(*words)
        done = subprocess.run(
            inside, input=stdin, capture_output=True, text=True, check=True, timeout=timeout,
            env=self.environment(),
        )  # fmt: skip
        return done.stdout

    def command(self, *words: str) -> list[str]:
        """Return a command line that enters the cluster's namespaces."""
        return ["nsenter", "--target", str(self._first()), "--mount", "--net", "--pid", *words]

    def environment(self) -> dict[str, str]:
        """Return the environment of commands."""
        return {**environment(), "KUBECONFIG": str(self.directory / "kubeconfig")}

    def wait(self, condition: Callable[[], bool], seconds: float = SECONDS) -> None:
        """Wait for a condition; raises SystemExit with the place of the logs."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise SystemExit(f"no answer within {seconds} s; see {self.directory}/log")
            time.sleep(0.3)

    def _supervisor(self) -> int:
        """Return the process that made the namespaces; raises OSError unless it is ours."""
        pid = int((self.directory / "pid").read_text())
        if str(self.directory).encode() not in Path(f"/proc/{pid}/cmdline").read_bytes():
            raise OSError(f"process {pid} is not ours")
        return pid

    def _first(self) -> int:
        """Return the first process of the namespaces; raises OSError if there is none."""
        pid = self._supervisor()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        if not children:
            raise OSError("the cluster does not run")
        return int(children[0])

    def _configure(self) -> None:
        here = self.directory
        for name in ("log", "cni", "etcd", "kubelet", "pods", "upper", "work", "proc"):
            (here / name).mkdir(parents=True)
        here.chmod(0o755)
        token = secrets.token_hex(16)
        values = {
            "directory": here, "token": token, "server": SERVER, "pause": PAUSE,
            "address": ADDRESS, "cgroup": self.cgroup,
        }  # fmt: skip
        texts = {
            "kubeconfig": KUBECONFIG.format(**values),
            "tokens.csv": f'{token},admin,admin,"system:masters"\n',
            "containerd.toml": CONTAINERD.format(**values),
            "cni/pods.conflist": CNI,
            "kubelet.yaml": KUBELET.format(**values),
            "resolv.conf": f"nameserver {ADDRESS}\n",
        }
        for name, text in texts.items():
            (here / name).touch(0o600)
            (here / name).write_text(text)
        subprocess.run(
            ["openssl", "genrsa", "-out", str(here / "accounts.key"), "2048"],
            check=True, capture_output=True,
        )  # fmt: skip
        for controller in CONTROLLERS:
            group = Path("/sys/fs/cgroup", controller)
            if group.is_dir():
                _make_cgroup(group / self.cgroup.lstrip("/"))


def _runs(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _make_cgroup(group: Path) -> None:
    group.mkdir(exist_ok=True)
    for name in ("cpuset.cpus", "cpuset.mems"):  # empty in a new group, which takes no process
        if (group / name).exists():
            (group / name).write_text((group.parent / name).read_text())


def daemons(here: Path) -> dict[str, list[str]]:
    """Return the command lines of everything, in the order in which they are started."""
    config, key = f"--kubeconfig={here}/kubeconfig", here / "accounts.key"
    return {
        "etcd": ["etcd", f"--data-dir={here}/etcd", "--unsafe-no-fsync"],
        "kube-apiserver": [
            "kube-apiserver", "--etcd-servers=http://127.0.0.1:2379", f"--cert-dir={here}/tls",
            "--bind-address=127.0.0.1", f"--advertise-address={ADDRESS}",
            "--authorization-mode=Node,RBAC", f"--token-auth-file={here}/tokens.csv",
            "--service-account-issuer=https://test", f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}", "--service-cluster-ip-range=10.96.0.0/16",
            "--endpoint-reconciler-type=none", "--enable-aggregator-routing=true",
            "--allow-privileged", "--kubelet-preferred-address-types=InternalIP",
        ],
        "kube-controller-manager": [
            "kube-controller-manager", config, f"--service-account-private-key-file={key}",
            "--bind-address=127.0.0.1", "--leader-elect=false",
            "--node-monitor-grace-period=20s", "--horizontal-pod-autoscaler-sync-period=3s",
        ],
        "kube-scheduler": [
            "kube-scheduler", config, "--bind-address=127.0.0.1", "--leader-elect=false"
        ],
        "containerd": ["containerd", f"--config={here}/containerd.toml"],
        "dnsmasq": [
            "dnsmasq", "--keep-in-foreground", "--no-resolv", "--no-hosts", "--user=root",
            "--pid-file", f"--listen-address={ADDRESS}", "--bind-interfaces",
            "--address=/cluster.local/", f"--address=/{NAMESPACE}.svc.cluster.local/{ADDRESS}",
        ],
        "kubelet": [
            "kubelet", config, f"--config={here}/kubelet.yaml", f"--root-dir={here}/kubelet",
            f"--hostname-override={NODE}", f"--node-ip={ADDRESS}",
        ],
        SIMULATOR: [
            SIMULATOR, config, f"--manage-nodes-with-label-selector={SIMULATED}",
            "--manage-all-nodes=false",
        ],
    }  # fmt: skip


def supervise(here: Path) -> None:
    """Run everything, as the first process of the namespaces, until one of the programs ends."""
    _mount(here)
    _connect()
    (here / "tls").mkdir()
    answers = {
        "kube-apiserver": ["kubectl", f"--kubeconfig={here}/kubeconfig", "get", "--raw=/readyz"],
        "containerd": ["ctr", "version"],
    }
    started: dict[int, str] = {}
    for name, words in daemons(here).items():
        with (here / "log" / name).open("ab") as log:
            process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        started[process.pid] = name
        while name in answers and process.poll() is None and not _succeeds(answers[name]):
            time.sleep(0.3)  # others end if it does not answer
    while True:
        pid, status = os.wait()  # of pods' processes too, whose parents ended
        if pid in started:
            raise SystemExit(f"{started[pid]} ended with {os.waitstatus_to_exitcode(status)}")


def _mount(here: Path) -> None:
    """Hide from the programs what they would change on this machine."""
    _call("mount", "--bind", "/proc/sys", "/proc/sys")
    _call("mount", "-o", "remount,bind,ro", "/proc/sys")
    for name, value in SYSCTLS.items():
        file = here / name.replace("/", "-")
        file.write_text(f"{value}\n")
        _call("mount", "--bind", str(file), f"/proc/sys/{name}")
    _call("mount", "-t", "proc", "proc", str(here / "proc"))
    _call("mount", "--bind", str(here / "proc/sys/net"), "/proc/sys/net")
    _call("mount", "-t", "tmpfs", "tmpfs", "/run")
    Path("/run/lock").mkdir()
    layers = f"lowerdir=/var/lib,upperdir={here}/upper,workdir={here}/work"
    _call("mount", "-t", "overlay", "overlay", "-o", layers, "/var/lib")


def _connect() -> None:
    """Give the node an address: a bridge without members, as dummy devices may be missing."""
    for words in (
        "link set lo up",
        "link add node0 type bridge",
        f"address add {ADDRESS}/24 dev node0",
        "link set node0 up",
        f"route add default via {ADDRESS}",
    ):
        _call("ip", *words.split())
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")


def _succeeds(words: Sequence[str]) -> bool:
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


def _call(*words: str) -> None:
    subprocess.run(words, check=True)


@contextlib.contextmanager
def running(directory: Path, archives: Sequence[Path] = ()) -> Iterator[Cluster]:
    """Run a cluster, and end it also after a failed start."""
    cluster = Cluster(directory)
    try:
        cluster.up(archives)
        yield cluster
    finally:
        cluster.down()


def main() -> None:
    """Run the command line."""
    match sys.argv[1:]:
        case ["install"]:
            install()
        case ["check"]:
            if reason := missing():
                raise SystemExit(reason)
        case ["up", directory, *archives]:
            if reason := missing():
                raise SystemExit(reason)
            cluster = Cluster(Path(directory))
            try:
                cluster.up([Path(each) for each in archives])
            except BaseException:
                cluster.down()
                raise
            print(f"export KUBECONFIG={cluster.directory}/kubeconfig")
        case ["run", directory, *words] if words:
            cluster = Cluster(Path(directory))
            os.execvpe("nsenter", cluster.command(*words), cluster.environment())
        case ["down", directory]:
            Cluster(Path(directory)).down()
        case ["supervise", directory]:
            supervise(Path(directory))
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main()
