#!/usr/bin/env python3
"""A real Slurm on this machine: slurmctld, slurmdbd with its database, and four slurmd.

    scripts/slurm_cluster.py install          # Debian's packages; their services are not started
    scripts/slurm_cluster.py up DIRECTORY        # prints the environment for Slurm's commands
    scripts/slurm_cluster.py up DIRECTORY ProctrackType=proctrack/cgroup   # lines of slurm.conf
    scripts/slurm_cluster.py restart DIRECTORY slurmctld
    scripts/slurm_cluster.py down DIRECTORY      # ends what `up` started, and nothing else

Needs root. Everything listens on loopback, at free ports, and is in DIRECTORY: keys, database,
configuration, logs. The nodes are c1 to c3 and gpu-1 with two files for GPUs; c4 is never started.
"""

import contextlib
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

PACKAGES = (
    "slurmctld", "slurmd", "slurm-client", "slurmdbd", "slurm-wlm-influxdb-plugin",
    "slurm-wlm-hdf5-plugin", "mariadb-server", "munge", "libslurm-perl", "libslurmdb-perl",
    "libfaketime",
)  # fmt: skip
SEFF = Path("/usr/local/bin/seff")
"""Slurm's own program, of Debian's source package: no binary package has it."""
PROGRAMS = ("slurmctld", "slurmd", "sacct", "slurmdbd", "mariadbd", "mariadb-install-db", "munged")
NODES = ("c1", "c2", "c3", "gpu-1")
DAEMONS = ("munged", "mariadbd", "slurmdbd", "slurmctld", *(f"slurmd-{node}" for node in NODES))
"""In the order in which they are started."""
SECONDS = 60
"""How long a daemon may take until it answers."""
LOCK_SECONDS = 600
"""How long another program may keep a lock of apt."""

SLURM_CONF = """\
ClusterName=testcluster
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={slurmctld}
AuthType=auth/munge
AuthInfo=socket={directory}/munge.socket
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool/%n
SlurmctldPidFile={directory}/slurmctld.slurm-pid
SlurmdPidFile={directory}/slurmd.%n.slurm-pid
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
ReturnToService=2
MinJobAge=10
KillWait=2
SlurmdTimeout=20
SchedulerParameters=sched_interval=2,bf_interval=2,batch_sched_delay=1
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=100
PriorityType=priority/multifactor
PriorityWeightAge=1000
PriorityWeightJobSize=100
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
GresTypes=gpu
SlurmdParameters=config_overrides
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={slurmdbd}
AccountingStoragePass={directory}/munge.socket
AccountingStorageTRES=gres/gpu
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1
AcctGatherProfileType=acct_gather_profile/influxdb
NodeName=c[1-4] NodeHostname={host} NodeAddr=127.0.0.1 Port={slurmd} CPUs=4 RealMemory=2000
NodeName=gpu-1 NodeHostname={host} NodeAddr=127.0.0.1 Port={gpu} CPUs=4 RealMemory=2000 Gres=gpu:2
PartitionName=normal Nodes=c[1-4] Default=YES MaxTime=INFINITE DefaultTime=00:30:00
PartitionName=accel Nodes=gpu-1 MaxTime=1-00:00:00
PartitionName=urgent Nodes=c3 PriorityTier=10 PreemptMode=OFF
PartitionName=exclusive Nodes=c[1-3] OverSubscribe=EXCLUSIVE
PartitionName=empty
"""

SLURMDBD_CONF = """\
AuthType=auth/munge
AuthInfo=socket={directory}/munge.socket
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={slurmdbd}
SlurmUser=root
PidFile={directory}/slurmdbd.slurm-pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={mariadb}
StorageUser=slurm
StoragePass={password}
StorageLoc=slurm_acct_db
"""

ACCT_GATHER_CONF = {
    "influxdb": (
        "ProfileInfluxDBHost=127.0.0.1:{profile}\n"
        "ProfileInfluxDBDatabase=slurm\n"
        "ProfileInfluxDBRTPolicy=autogen\n"
    ),
    "hdf5": "ProfileHDF5Dir={directory}/profiles\n",
}
"""By plug-in. Only jobs with ``--profile`` are profiled."""


def install() -> None:
    """Install the packages without starting their services."""
    install_packages(PACKAGES)
    if not SEFF.exists():
        try:
            with tempfile.TemporaryDirectory() as directory:
                install_seff(Path(directory))
        except (subprocess.CalledProcessError, ValueError) as error:
            print(f"seff is not installed: no source package of Slurm ({error})", file=sys.stderr)


def install_packages(names: Sequence[str]) -> None:
    """Install Debian packages without starting their services."""
    policy = Path("/usr/sbin/policy-rc.d")
    is_ours = not policy.exists()
    if is_ours:
        policy.write_text("#!/bin/sh\nexit 101\n")
        policy.chmod(0o755)
    try:
        apt_get("update", "-qq")
        apt_get("install", "-y", "-qq", "--no-install-recommends", *names)
    finally:
        if is_ours:
            policy.unlink()


def apt_get(*words: str) -> None:
    """Run apt-get; while another program holds one of its locks, wait and run it again.

    apt's own ``DPkg::Lock::Timeout`` waits for the lock of dpkg only, not for the one of the lists.
    """
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        done = subprocess.run(
            ["apt-get", *words], env=environment, stderr=subprocess.PIPE, text=True, check=False
        )
        if done.returncode == 0:
            return
        is_locked = "Could not get lock" in done.stderr
        if not is_locked or time.monotonic() > deadline:
            raise SystemExit(f"apt-get {words[0]} failed:\n{done.stderr.rstrip()}")
        time.sleep(1)


def install_seff(directory: Path) -> None:
    """Take seff from the source package of the Slurm that is installed; `directory` is temporary.

    Not every archive has source packages; without seff its test is skipped by name.
    """
    directory.chmod(0o755)  # apt downloads as a user of its own
    parts = directory / "sources"
    for name in ("sources", "lists", "archives"):
        (directory / name).mkdir()
    for path in (Path("/etc/apt/sources.list"), *Path("/etc/apt/sources.list.d").glob("*")):
        text = path.read_text() if path.exists() else ""
        if "debian.org" in text:
            binary = re.compile(r"^(Types: )?deb(?= |$)", re.MULTILINE)
            (parts / path.name).write_text(binary.sub(r"\1deb-src", text))
    apt = (
        "apt-get", "-qq", "-o", f"Dir::Etc::sourceparts={parts}", "-o", f"Dir::State={directory}",
        "-o", f"Dir::State::lists={directory}/lists", "-o", "Dir::Etc::sourcelist=/dev/null",
        "-o", "Dir::State::status=/var/lib/dpkg/status", "-o", "APT::Sandbox::User=root",
    )  # fmt: skip
    show = ("dpkg-query", "--show", "--showformat", "${source:Package}=${source:Version}", "slurmd")
    source = subprocess.run(show, check=True, capture_output=True, text=True).stdout
    subprocess.run([*apt, "update"], check=True)
    subprocess.run([*apt, "source", "--download-only", source], check=True, cwd=directory)
    (archive,) = directory.glob("*.orig.tar.*")
    with tarfile.open(archive) as tar:
        member = next(one for one in tar if one.name.endswith("/contribs/seff/seff"))
        SEFF.write_bytes(tar.extractfile(member).read())  # type: ignore[union-attr]
    SEFF.chmod(0o755)


def missing() -> str:
    """Return why a cluster cannot run here; empty if it can."""
    if os.geteuid() != 0:
        return "a Slurm cluster needs root"
    absent = [name for name in PROGRAMS if shutil.which(name) is None]
    return f"no {', '.join(absent)}: scripts/slurm_cluster.py install" if absent else ""


def require() -> None:
    """End with the reason where a cluster cannot run here."""
    if reason := missing():
        raise SystemExit(reason)


class Cluster:
    """The daemons of a directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.absolute()
        self.environment = {
            **os.environ,
            "SLURM_CONF": str(self.directory / "slurm.conf"),
            "TZ": "UTC",
        }

    def up(self, lines: Sequence[str] = ()) -> None:
        """Configure and start everything; `lines` replace lines of slurm.conf with equal keys."""
        self._configure(lines)
        for name in DAEMONS:
            self.start(name)
        nodes = ("--nodes", ",".join(NODES))
        self._wait(
            lambda: (
                set(self.run("sinfo", "--noheader", *nodes, "--format", "%T").split()) == {"idle"}
            )
        )
        for account in ("physics", "ml"):
            self.run("sacctmgr", "--immediate", "add", "account", account)
        for user, account in (("root", "physics"), ("nobody", "ml")):
            self.run("sacctmgr", "--immediate", "add", "user", user, f"account={account}")

    def start(self, name: str) -> None:
        """Start a daemon and wait until it answers."""
        with (self.directory / "log" / name).open("ab") as log:
            process = subprocess.Popen(
                self._command(name), env=self.environment, stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        self._pid_file(name).write_text(str(process.pid))
        ready: dict[str, Callable[[], bool]] = {
            "munged": (self.directory / "munge.socket").exists,
            "mariadbd": lambda: self._listens("mariadb"),
            "slurmdbd": lambda: self._listens("slurmdbd"),
            "slurmctld": lambda: "UP" in self.run("scontrol", "ping"),
        }
        self._wait(lambda: process.poll() is not None or ready.get(name, lambda: True)())
        if process.poll() is not None:
            raise SystemExit(f"{name} ended: {self.directory / 'log' / name}")
        if name == "slurmdbd":
            self._wait(lambda: "testcluster" in self._add_cluster())

    def stop(self, name: str, with_signal: int = signal.SIGTERM) -> None:
        """End a daemon that was started here, if it still runs."""
        file = self._pid_file(name)
        pid = int(file.read_text()) if file.exists() else 0
        file.unlink(missing_ok=True)
        if not pid or not self._is_ours(pid):
            return
        os.kill(pid, with_signal)
        deadline = time.monotonic() + SECONDS / 3
        while self._is_ours(pid):
            if time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.1)

    def down(self) -> None:
        """Cancel all jobs and end everything that was started here."""
        jobs = self.run("squeue", "--noheader", "--format", "%A").split()
        if jobs:
            self.run("scancel", *set(jobs))
            time.sleep(1)
            self.run("scancel", "--signal", "KILL", *set(jobs))
        for name in reversed(DAEMONS):
            self.stop(name)
        groups = [
            group for node in NODES for group in Path("/sys/fs/cgroup").glob(f"*/slurm_{node}")
        ]
        for state in (path for group in groups for path in group.rglob("freezer.state")):
            with contextlib.suppress(OSError):  # frozen processes do not end
                state.write_text("THAWED")
        deadline = time.monotonic() + SECONDS / 3
        while self._kill_jobs() and time.monotonic() < deadline:
            time.sleep(0.1)
        for group in groups:  # slurmd leaves its control groups, if it made some
            directories = [path for path in group.rglob("*") if path.is_dir()]
            for directory in (*sorted(directories, reverse=True), group):
                with contextlib.suppress(OSError):  # another cluster's, in use
                    directory.rmdir()

    def _kill_jobs(self) -> bool:
        """End processes that could not be cancelled; return whether there were any.

        Processes of jobs know their slurm.conf and their job.
        """
        found = False
        ours = b"\0SLURM_CONF=%s\0" % self.environment["SLURM_CONF"].encode()
        for path in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                text = b"\0" + path.read_bytes()
                name = (path.parent / "comm").read_text().strip()
                if ours in text and (b"\0SLURM_JOB_ID=" in text or name == "slurmstepd"):
                    os.kill(int(path.parent.name), signal.SIGKILL)
                    found = True
        return found

    def run(self, *words: str) -> str:
        """Return the stdout of one of Slurm's commands; its stderr is ignored."""
        found = subprocess.run(
            words, env=self.environment, capture_output=True, text=True, check=False, timeout=60
        )
        return found.stdout

    def _configure(self, lines: Sequence[str]) -> None:
        for name in ("log", "state", "spool", "pid", "db", "profiles"):
            (self.directory / name).mkdir(parents=True)
        self.directory.chmod(0o755)
        names = ("slurmctld", "slurmdbd", "mariadb", "gpu", "profile")
        first = _free_ports(len(names) + len(NODES))
        ports = dict(zip(names, first, strict=False))
        (self.directory / "ports").write_text("\n".join(f"{k} {v}" for k, v in ports.items()))
        values = {
            **ports,
            "slurmd": f"[{','.join(map(str, first[len(names) :]))}]",
            "directory": self.directory,
            "host": socket.gethostname().partition(".")[0],
            "password": secrets.token_hex(16),
        }
        keys = tuple(line.partition("=")[0] + "=" for line in lines)
        usual = SLURM_CONF.format(**values).splitlines()
        kept = [line for line in usual if not (keys and line.startswith(keys))]
        self._write("slurm.conf", "\n".join([*kept, *lines, ""]), 0o644)
        self._write("slurmdbd.conf", SLURMDBD_CONF.format(**values), 0o600)
        plugin = "hdf5" if any(line.endswith("profile/hdf5") for line in lines) else "influxdb"
        self._write("acct_gather.conf", ACCT_GATHER_CONF[plugin].format(**values), 0o644)
        gpus = f"NodeName=gpu-1 Name=gpu File={self.directory}/gpu[0-1]\n"
        self._write("gres.conf", gpus, 0o644)
        self._write("cgroup.conf", "CgroupPlugin=cgroup/v1\n", 0o644)
        for gpu in ("gpu0", "gpu1"):
            (self.directory / gpu).touch()
        (self.directory / "munge.key").write_bytes(secrets.token_bytes(128))
        (self.directory / "munge.key").chmod(0o400)
        self._write(
            "init.sql",
            "CREATE USER 'slurm'@'127.0.0.1' IDENTIFIED BY '{password}';\n"
            "GRANT ALL ON slurm_acct_db.* TO 'slurm'@'127.0.0.1';\n".format(**values),
            0o600,
        )
        subprocess.run(
            ["mariadb-install-db", "--no-defaults", "--user=root", "--skip-test-db",
             f"--datadir={self.directory}/db", "--auth-root-authentication-method=socket"],
            check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def _write(self, name: str, text: str, mode: int) -> None:
        path = self.directory / name
        path.touch(mode)
        path.chmod(mode)
        path.write_text(text)

    def _command(self, name: str) -> list[str]:
        directory, conf = self.directory, str(self.directory / "slurm.conf")
        commands = {
            "munged": [
                "munged", "--foreground", "--force", f"--key-file={directory}/munge.key",
                f"--socket={directory}/munge.socket", f"--pid-file={directory}/munge.pid",
                f"--log-file={directory}/log/munged.log", f"--seed-file={directory}/munge.seed",
                "--num-threads=2",
            ],
            "mariadbd": [
                "mariadbd", "--no-defaults", "--user=root", f"--datadir={directory}/db",
                f"--socket={directory}/mariadb.socket", f"--pid-file={directory}/mariadb.pid",
                "--bind-address=127.0.0.1", f"--port={self._port('mariadb')}",
                "--innodb-buffer-pool-size=64M", "--innodb-lock-wait-timeout=900",
                *([] if (directory / "db/slurm_acct_db").exists()
                  else [f"--init-file={directory}/init.sql"]),
            ],
            "slurmdbd": ["slurmdbd", "-D"],
            "slurmctld": ["slurmctld", "-D", "-f", conf],
        }  # fmt: skip
        node = name.removeprefix("slurmd-")
        return commands.get(name, ["slurmd", "-D", "-N", node, "-f", conf])

    def _add_cluster(self) -> str:
        self.run("sacctmgr", "--immediate", "add", "cluster", "testcluster")
        return self.run("sacctmgr", "--noheader", "show", "cluster", "format=cluster%20")

    def _pid_file(self, name: str) -> Path:
        return self.directory / "pid" / name

    def _is_ours(self, pid: int) -> bool:
        """Whether a process still runs and was started with our directory's files."""
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
            environment = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return False
        is_zombie = stat.rpartition(")")[2].split()[0] == "Z"
        return not is_zombie and str(self.directory).encode() in environment

    def _port(self, name: str) -> int:
        pairs = dict(line.split() for line in (self.directory / "ports").read_text().splitlines())
        return int(pairs[name])

    def _listens(self, name: str) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port(name))) == 0

    def _wait(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + SECONDS
        while not condition():
            if time.monotonic() > deadline:
                raise SystemExit(f"no answer within {SECONDS} s; see {self.directory}/log")
            time.sleep(0.2)


def _free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


def main() -> None:
    """Run the command line."""
    match sys.argv[1:]:
        case ["install"]:
            install()
        case ["check"]:
            require()
        case ["up", directory, *lines] if all("=" in line for line in lines):
            require()
            cluster = Cluster(Path(directory))
            try:
                cluster.up(lines)
            except BaseException:
                cluster.down()
                raise
            print(f"export SLURM_CONF={cluster.directory}/slurm.conf")
        case ["down", directory]:
            Cluster(Path(directory)).down()
        case ["stop" | "start" | "restart" as what, directory, name] if name in DAEMONS:
            cluster = Cluster(Path(directory))
            if what != "start":
                cluster.stop(name)
            if what != "stop":
                cluster.start(name)
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main()
