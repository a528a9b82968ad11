"""A real Kafka broker for the tests."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ccpipe.bus.kafka.broker import Broker
from tests.conftest import free_port, program, until_listening
from tests.paths import ROOT

TOOL = ROOT / "scripts/kafka_server.py"

PROPERTIES = """\
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER
controller.quorum.voters=1@127.0.0.1:{controller}
log.dirs={folder}/data
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
num.partitions=2
"""


def jars() -> Path:
    """Return the folder of the broker's jars; skip or fail where they are not installed."""
    done = subprocess.run([sys.executable, str(TOOL), "path"], capture_output=True, check=True)
    path = Path(done.stdout.decode().strip())
    if not path.is_dir():
        reason = "Kafka is not installed: python3 scripts/kafka_server.py install"
        if os.environ.get("CCPIPE_TESTS_STRICT"):
            pytest.fail(reason)
        pytest.skip(reason)
    return path


class Kafka:
    """A real broker on loopback, which is its own controller; topics are created when used."""

    def __init__(self, folder: Path) -> None:
        """Prepare its folder."""
        java = str(program("java", "default-jre-headless"))
        self.java = [java, "-Xmx192m", "-XX:TieredStopAtLevel=1", "-cp", f"{jars()}/*"]
        self.folder = folder
        self.port = free_port()
        self.properties = folder / "server.properties"
        self.properties.write_text(
            PROPERTIES.format(port=self.port, controller=free_port(), folder=folder)
        )
        self.run("kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qk", "-c")

    def run(self, tool: str, *arguments: str) -> None:
        """Run one of Kafka's own tools on our configuration."""
        command = [*self.java, tool, *arguments, str(self.properties)]
        subprocess.run(command, check=True, capture_output=True)

    async def start(self) -> None:
        """Start it and wait until it answers."""
        with (self.folder / "log").open("ab") as file:
            command = [*self.java, "kafka.Kafka", str(self.properties)]
            self.process = subprocess.Popen(command, stdout=file, stderr=file)
        await until_listening(self.port, self.process, self.folder / "log")

    def stop(self) -> None:
        """End it and wait until it is gone."""
        self.process.kill()
        self.process.wait()

    @property
    def broker(self) -> Broker:
        """How to reach it."""
        return Broker(servers=(f"127.0.0.1:{self.port}",))
