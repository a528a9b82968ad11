"""etcd and kube-apiserver on loopback, which validate objects; nothing runs pods."""

import json
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import pytest

from ccpipe.process.die_with_parent import die_with_parent
from scripts.kubernetes_programs import absent, environment
from tests.conftest import free_port

TOKEN = "test"  # noqa: S105 - of a server on loopback


class ApiServer:
    """An API server with its own store, as a context manager."""

    def __init__(self, directory: Path) -> None:
        """Skip the test by name if the programs are not installed; keep data in `directory`."""
        if names := absent("etcd", "kube-apiserver", "kubectl"):
            pytest.skip(f"no {', '.join(names)}: scripts/kubernetes_cluster.py install, as root")
        self.directory = directory
        self.port, self._etcd, self._peers = free_port(), free_port(), free_port()
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        """Start both, and wait until the server answers."""
        self.directory.mkdir()
        try:
            self._start_both()
            self._wait_ready()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start_both(self) -> None:
        key = self.directory / "accounts.key"
        command = ["openssl", "genrsa", "-out", str(key), "2048"]
        subprocess.run(command, check=True, capture_output=True)
        (self.directory / "tokens").write_text(f'{TOKEN},admin,admin,"system:masters"\n')
        store, peers = (f"http://127.0.0.1:{port}" for port in (self._etcd, self._peers))
        self._start(
            "etcd", "--data-dir", str(self.directory / "etcd"), "--unsafe-no-fsync",
            "--listen-client-urls", store, "--advertise-client-urls", store,
            "--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers,
            "--initial-cluster", f"default={peers}",
        )  # fmt: skip
        self._start(
            "kube-apiserver", f"--etcd-servers={store}", "--bind-address=127.0.0.1",
            f"--secure-port={self.port}", f"--cert-dir={self.directory}",
            f"--token-auth-file={self.directory}/tokens", "--authorization-mode=RBAC",
            "--service-account-issuer=https://test", f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}", "--endpoint-reconciler-type=none",
            "--service-cluster-ip-range=10.96.0.0/16", "--allow-privileged",
            "--disable-admission-plugins=ServiceAccount",  # their controller does not run
        )  # fmt: skip

    def _wait_ready(self) -> None:
        deadline = time.monotonic() + 300
        made = ("namespace/default", "priorityclass/system-node-critical")  # by the server itself
        while self.kubectl("get", *made).returncode:
            for process in self._processes:
                assert process.poll() is None, self._logs()
            assert time.monotonic() < deadline, self._logs()
            time.sleep(0.2)

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._processes):
            process.kill()
            process.wait()

    def kubectl(self, *words: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
        """Run kubectl; its stderr has the server's reasons."""
        server = f"--server=https://127.0.0.1:{self.port}"
        return subprocess.run(
            ["kubectl", server, "--insecure-skip-tls-verify", f"--token={TOKEN}", *words],
            input=stdin, capture_output=True, text=True, check=False, timeout=300,
            env={**environment(), "KUBECONFIG": "/dev/null", "HOME": str(self.directory)},
        )  # fmt: skip

    def apply(self, objects: Sequence[dict[str, Any]], *options: str) -> list[str]:
        """Apply objects with strict validation; return what kubectl says of each."""
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        done = self.kubectl("apply", "--validate=strict", *options, "-f", "-", stdin=text)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    def _start(self, *words: str) -> None:
        with (self.directory / f"{words[0]}.log").open("wb") as log:
            process = subprocess.Popen(
                words, stdout=log, stderr=log, env=environment(),
                preexec_fn=die_with_parent,  # noqa: PLW1509
            )  # fmt: skip
        self._processes.append(process)

    def _logs(self) -> str:
        return "\n".join(path.read_text()[-3000:] for path in self.directory.glob("*.log"))
