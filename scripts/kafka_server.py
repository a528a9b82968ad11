#!/usr/bin/env python3
"""Install a real Kafka broker for the tests, from Maven's repository.

::

    python3 scripts/kafka_server.py install     # once: 45 MB below $XDG_CACHE_HOME/ccpipe/kafka
    python3 scripts/kafka_server.py path        # print the directory of the jars

It needs Java 17 and Maven, whose own settings have the repository. Without them it prints a note
and exits with 0, and the tests that need a broker are skipped by name with the reason (with
CCPIPE_TESTS_STRICT=1 they fail instead).
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

VERSION = "3.9.1"

POM = f"""\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>ccpipe.tests</groupId>
  <artifactId>kafka</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka_2.13</artifactId>
      <version>{VERSION}</version>
    </dependency>
  </dependencies>
</project>
"""


def directory() -> Path:
    """Return where the jars are, or would be."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "ccpipe" / f"kafka-{VERSION}"


def is_installed() -> bool:
    """Whether the jars are there, all of them: the directory appears when it is complete."""
    return directory().is_dir()


def install() -> None:
    """Fetch the broker with what it depends on."""
    if is_installed():
        return
    missing = [name for name in ("java", "mvn") if shutil.which(name) is None]
    if missing:
        print(f"no {' and no '.join(missing)} here; tests of Kafka are skipped", file=sys.stderr)
        return
    directory().parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory().parent) as draft:
        pom = Path(draft) / "pom.xml"
        pom.write_text(POM, encoding="utf-8")
        jars = Path(draft) / "jars"
        goal = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
        command = ["mvn", "--batch-mode", "--quiet", "--file", str(pom), goal]
        done = subprocess.run([*command, f"-DoutputDirectory={jars}"], check=False)  # noqa: S603
        if done.returncode:
            print("Maven could not fetch Kafka; its tests are skipped", file=sys.stderr)
        else:
            jars.rename(directory())


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["install"]:
            install()
        case ["path"]:
            print(directory())
        case _:
            sys.exit(f"usage: {sys.argv[0]} install|path")
