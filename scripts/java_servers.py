#!/usr/bin/env python3
"""Install real servers that run on Java for the tests, from Maven's repository.

::

    python3 scripts/java_servers.py install         # all of them, or those that are named; once
    python3 scripts/java_servers.py path kafka      # print the directory of its jars

Kafka takes 45 MB, QuestDB 30 MB below ``$XDG_CACHE_HOME/ccpipe``. They need Java 17 and Maven,
whose own settings have the repository. Without them it prints a note and exits with 0, and the
tests that need a server are skipped by name with the reason (with CCPIPE_TESTS_STRICT=1 they fail
instead).
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple


class Artifact(NamedTuple):
    """What a server is in Maven's repository."""

    group: str
    name: str
    version: str


SERVERS = {
    "kafka": Artifact("org.apache.kafka", "kafka_2.13", "3.9.1"),
    "questdb": Artifact("org.questdb", "questdb", "9.3.4"),
}

POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>ccpipe.tests</groupId>
  <artifactId>server</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>{group}</groupId>
      <artifactId>{name}</artifactId>
      <version>{version}</version>
    </dependency>
  </dependencies>
</project>
"""


def directory(server: str) -> Path:
    """Return where the jars are, or would be."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "ccpipe" / f"{server}-{SERVERS[server].version}"


def is_installed(server: str) -> bool:
    """Whether the jars are there, all of them: the directory appears when it is complete."""
    return directory(server).is_dir()


def install(server: str) -> None:
    """Fetch a server with what it depends on."""
    if is_installed(server):
        return
    missing = [name for name in ("java", "mvn") if shutil.which(name) is None]
    if missing:
        print(f"no {' and no '.join(missing)} here; tests of {server} are skipped", file=sys.stderr)
        return
    parent = directory(server).parent
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=parent) as draft:
        pom = Path(draft) / "pom.xml"
        pom.write_text(POM.format(**SERVERS[server]._asdict()), encoding="utf-8")
        jars = Path(draft) / "jars"
        goal = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
        command = ["mvn", "--batch-mode", "--quiet", "--file", str(pom), goal]
        done = subprocess.run([*command, f"-DoutputDirectory={jars}"], check=False)  # noqa: S603
        if done.returncode:
            print(f"Maven could not fetch {server}; its tests are skipped", file=sys.stderr)
        else:
            jars.rename(directory(server))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["install", *names] if SERVERS.keys() >= set(names):
            for each in names or SERVERS:
                install(each)
        case ["path", name] if name in SERVERS:
            print(directory(name))
        case _:
            sys.exit(f"usage: {sys.argv[0]} install [{'|'.join(SERVERS)}]… | path NAME")
