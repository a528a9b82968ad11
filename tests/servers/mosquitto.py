"""A real Mosquitto for the tests."""

import subprocess
from pathlib import Path
from typing import Self

from ccpipe.bus.mqtt.session import MqttBroker
from tests.conftest import free_port, program, until_listening
from tests.servers import stopped_on_failure


class Mosquitto:
    """A real broker on loopback, which keeps sessions and messages in a directory."""

    def __init__(self, directory: Path, *lines: str) -> None:
        """Configure it; `lines` are added, by default to allow anonymous clients."""
        self.program = program("mosquitto", "mosquitto")
        self.directory = directory
        self.port = free_port()
        self.url = f"mqtt://127.0.0.1:{self.port}"
        self.config = directory / "mosquitto.conf"
        directory.mkdir(exist_ok=True)
        settings = [
            f"listener {self.port} 127.0.0.1",
            "persistence true",
            f"persistence_location {directory}/",
            "autosave_on_changes true",
            "autosave_interval 1",
            "user root" if directory.owner() == "root" else "",
            *(lines or ["allow_anonymous true"]),
        ]
        self.config.write_text("\n".join(settings) + "\n")

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stop()

    async def start(self) -> None:
        with (self.directory / "log").open("ab") as file:
            command = [str(self.program), "-c", str(self.config)]
            self.process = subprocess.Popen(command, stdout=file, stderr=file)
        with stopped_on_failure(self.stop):
            await until_listening(self.port, self.process, self.directory / "log")

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()

    @property
    def broker(self) -> MqttBroker:
        return MqttBroker(url=self.url)
