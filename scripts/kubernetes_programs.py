"""The programs of a Kubernetes for tests: Debian's packages, and what Go compiles.

Kubernetes' own programs are compiled from its Go modules, which takes Go, some ten minutes of two
cores and 6 GB of disk in Go's caches. They are kept below ``$XDG_CACHE_HOME/ccpipe``.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from scripts.image_archive import write_archive
from scripts.slurm_cluster import install_packages

VERSION = "1.34.4"
KEDA_VERSION = "2.20.2"
KWOK_VERSION = "0.7.0"
PACKAGES = (
    "etcd-server", "containerd", "runc", "containernetworking-plugins", "dnsmasq-base", "iproute2",
    "gcc", "libc6-dev",
)  # fmt: skip
COMPILED = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl")
PROGRAMS = ("etcd", "containerd", "ctr", "runc", "dnsmasq", "ip", "nsenter", "unshare")
SIMULATOR = "kwok"
"""Plays the kubelets of further nodes, on which no process runs."""
PAUSE = f"localhost/pause:{VERSION}"
"""The image of every pod's first container."""


def directory() -> Path:
    """Return where the compiled programs are, or would be."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "ccpipe" / f"kubernetes-{VERSION}"


def crds() -> Path:
    """Return the file of KEDA's custom resource definition, or where it would be."""
    return directory() / "scaledobjects.yaml"


def path() -> str:
    """Return PATH with the compiled programs first."""
    return os.pathsep.join([str(directory()), os.environ.get("PATH", os.defpath)])


def absent(*names: str) -> list[str]:
    """Return which of some programs are not here."""
    return [name for name in names if shutil.which(name, path=path()) is None]


def install() -> None:
    """Install Debian's packages; compile the rest, if it is not there."""
    install_packages(PACKAGES)
    if shutil.which("go") is None:
        print("no Go here, which compiles Kubernetes; its tests are skipped", file=sys.stderr)
        return
    directory().mkdir(parents=True, exist_ok=True)
    source = Path(module("k8s.io/kubernetes", VERSION)["Dir"])
    if missing := absent(*COMPILED):
        with tempfile.TemporaryDirectory() as draft:
            compile_programs(missing, Path(draft))
    if absent(SIMULATOR):
        with tempfile.TemporaryDirectory() as draft:
            compile_simulator(Path(draft))
    if not (directory() / "pause.tar").is_file():
        make_pause(source / "build/pause/linux/pause.c")
    keda = Path(module("github.com/kedacore/keda/v2", KEDA_VERSION)["Dir"])
    shutil.copyfile(keda / "config/crd/bases/keda.sh_scaledobjects.yaml", crds())
    if absent("keda-lag"):
        compile_scaler(keda)


def module(name: str, version: str) -> dict[str, Any]:
    """Return what ``go mod download`` says of a module, which it downloads."""
    done = subprocess.run(
        ["go", "mod", "download", "-json", f"{name}@v{version}"],
        check=True, stdout=subprocess.PIPE, text=True, cwd="/",
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def compile_programs(names: list[str], draft: Path) -> None:
    """Compile programs of Kubernetes in a module of our own that requires it.

    Its staging modules have no version there: each is the one of its release.
    """
    text = Path(module("k8s.io/kubernetes", VERSION)["GoMod"]).read_text()
    go = re.findall(r"^go .+", text, re.MULTILINE)
    staged = re.findall(r"^\t(\S+) => \./staging/", text, re.MULTILINE)
    replaced = (f"replace {each} => {each} v0.{VERSION.partition('.')[2]}" for each in staged)
    lines = ["module programs", *go, f"require k8s.io/kubernetes v{VERSION}", *replaced]
    (draft / "go.mod").write_text("\n".join([*lines, ""]))
    flags = f"-X k8s.io/component-base/version.gitVersion=v{VERSION}"
    for name in names:
        go_build(draft, name, f"k8s.io/kubernetes/cmd/{name}", flags)


def compile_simulator(draft: Path) -> None:
    name = "sigs.k8s.io/kwok"
    text = Path(module(name, KWOK_VERSION)["GoMod"]).read_text()
    go = re.findall(r"^go .+", text, re.MULTILINE)
    lines = ["module programs", *go, f"require {name} v{KWOK_VERSION}"]
    (draft / "go.mod").write_text("\n".join([*lines, ""]))
    go_build(draft, SIMULATOR, f"{name}/cmd/kwok")


def go_build(module_directory: Path, name: str, package: str, flags: str = "") -> None:
    """Compile a program without C libraries, and keep it under its name."""
    print(f"compiling {name}", file=sys.stderr)
    options = f"{os.environ.get('GOFLAGS', '')} -mod=mod -buildvcs=false"
    subprocess.run(
        ["go", "build", "-p", "2", "-ldflags", f"-s -w {flags}", "-o", str(directory() / name),
         package],
        check=True, cwd=module_directory,
        env={**os.environ, "CGO_ENABLED": "0", "GOFLAGS": options},
    )  # fmt: skip


def compile_scaler(keda: Path) -> None:
    """Compile KEDA's scaler for NATS alone, with a main program of ours."""
    text = (keda / "go.mod").read_text()
    replaced = re.findall(r"^\t(\S+ => \S+ \S+)$", text, re.MULTILINE)
    go = re.findall(r"^go .+", text, re.MULTILINE)
    required = f"require github.com/kedacore/keda/v2 v{KEDA_VERSION}"
    with tempfile.TemporaryDirectory() as directory:
        draft = Path(directory)
        lines = ["module scaler", *go, required, *(f"replace {each}" for each in replaced)]
        (draft / "go.mod").write_text("\n".join([*lines, ""]))
        shutil.copyfile(keda / "go.sum", draft / "go.sum")
        for name in ("nats_jetstream_scaler.go", "scaler.go"):
            source = (keda / "pkg/scalers" / name).read_text()
            (draft / name).write_text(source.replace("package scalers", "package main", 1))
        shutil.copyfile(Path(__file__).with_name("keda_lag.go"), draft / "main.go")
        go_build(draft, "keda-lag", ".")


def make_pause(source: Path) -> None:
    """Compile the program that holds a pod's namespaces, and write its image."""
    with tempfile.TemporaryDirectory() as draft:
        program = Path(draft) / "pause"
        subprocess.run(["gcc", "-static", "-Os", "-o", str(program), str(source)], check=True)
        write_archive(directory() / "pause.tar", PAUSE, {"/pause": program}, ["/pause"])


def environment() -> Mapping[str, str]:
    """Return our environment with the programs on PATH."""
    return {**os.environ, "PATH": path()}
