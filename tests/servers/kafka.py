"""A real Kafka broker for the tests."""

import subprocess
from pathlib import Path

from ccpipe.bus.kafka.broker import KafkaBroker
from tests.certificates import Certificates
from tests.conftest import free_port, program, until_listening
from tests.servers import stopped_on_failure
from tests.servers.java import jars

PROPERTIES = """\
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER
controller.quorum.voters=1@127.0.0.1:{controller}
log.dirs={directory}/data
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
num.partitions=2
"""

SECURE = """\
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller},\\
 SSL://127.0.0.1:{ssl},SASL_SSL://127.0.0.1:{sasl_ssl},SASL_PLAINTEXT://127.0.0.1:{sasl_plaintext}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SSL:SSL,\\
 SASL_SSL:SASL_SSL,SASL_PLAINTEXT:SASL_PLAINTEXT
ssl.keystore.type=PEM
ssl.keystore.location={directory}/server.pem
ssl.truststore.type=PEM
ssl.truststore.location={ca}
listener.name.ssl.ssl.client.auth=required
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512
{logins}
"""
"""Added for a broker that requires certificates and passwords."""

LOGIN = "org.apache.kafka.common.security"
USER, PASSWORD = "fox", "pa ss-word"
"""Of whom the broker knows, by every mechanism."""


class Kafka:
    """A real broker on loopback, which is its own controller; topics are created when used."""

    def __init__(self, directory: Path, tls: Certificates | None = None) -> None:
        """Prepare its directory; with certificates it has listeners with authentication, too."""
        java = str(program("java", "default-jre-headless"))
        self.java = [java, "-Xmx192m", "-XX:TieredStopAtLevel=1", "-cp", f"{jars('kafka')}/*"]
        self.directory, self._tls = directory, tls
        self.properties = directory / "server.properties"
        self._configure()
        users: list[str] = []
        if tls is not None:
            said = f"[name={USER},password={PASSWORD}]"
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
                users += ["--add-scram", f"{mechanism}={said}"]
        self.run("kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qk", *users, "-c")

    def _configure(self) -> None:
        self.port, self.controller = free_port(), free_port()
        self.ports: dict[str, int] = {}
        self.properties.write_text(
            PROPERTIES.format(port=self.port, controller=self.controller, directory=self.directory)
        )
        if self._tls is not None:
            self._secure(self._tls)

    def _secure(self, tls: Certificates) -> None:
        self.ports |= {name: free_port() for name in ("ssl", "sasl_ssl", "sasl_plaintext")}
        (self.directory / "server.pem").write_text(tls.key.read_text() + tls.cert.read_text())
        plain = f'{LOGIN}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
        scram = f"{LOGIN}.scram.ScramLoginModule required;"
        logins = [
            f"listener.name.{listener}.{mechanism}.sasl.jaas.config={login}"
            for listener in ("sasl_ssl", "sasl_plaintext")
            for mechanism, login in [
                ("plain", plain), ("scram-sha-256", scram), ("scram-sha-512", scram),
            ]
        ]  # fmt: skip
        lines = SECURE.format(
            port=self.port, controller=self.controller, directory=self.directory, ca=tls.ca,
            logins="\n".join(logins), **self.ports,
        )  # fmt: skip
        with self.properties.open("a", encoding="utf-8") as file:
            file.write(lines)

    def run(self, tool: str, *arguments: str) -> None:
        command = [*self.java, tool, *arguments, str(self.properties)]
        subprocess.run(command, check=True, capture_output=True)

    async def start(self) -> None:
        """Start it and wait until it answers, with other ports if one was taken meanwhile."""
        try:
            await self._start()
        except AssertionError:
            self._configure()
            await self._start()

    async def _start(self) -> None:
        with (self.directory / "log").open("ab") as file:
            command = [*self.java, "kafka.Kafka", str(self.properties)]
            self.process = subprocess.Popen(command, stdout=file, stderr=file)
        with stopped_on_failure(self.stop):
            for port in (self.port, *self.ports.values()):
                await until_listening(port, self.process, self.directory / "log")

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()

    @property
    def broker(self) -> KafkaBroker:
        return KafkaBroker(servers=(f"127.0.0.1:{self.port}",))
