"""compose.yaml as an engine would read it: variables replaced, files found."""

import os
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.cli.command import environment
from tests.paths import ROOT

COMPOSE: Mapping[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
SERVICES: Mapping[str, Mapping[str, Any]] = COMPOSE["services"]
CCPIPE = [name for name, service in SERVICES.items() if service.get("image") == "ccpipe"]
BRIDGES = [name for name in CCPIPE if name.startswith("bridge-")]


class Prepared:
    """A copy of what compose.yaml needs of the project, after ``prepare.sh`` has run in it."""

    def __init__(self, directory: Path, *arguments: str, **environ: str) -> None:
        self.directory = directory
        shutil.copy(ROOT / "compose.yaml", directory)
        shutil.copytree(ROOT / "bridges", directory / "bridges")
        path = f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ['PATH']}"
        self.done = subprocess.run(
            [directory / "bridges/compose/prepare.sh", *arguments],
            env=environment(PATH=path, **environ),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    @property
    def variables(self) -> dict[str, str]:
        lines = (self.directory / ".env").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines)

    def resolve(self, text: str) -> str:
        """Replace ``${NAME:?message}``, ``${NAME:-default}`` and ``$$``."""
        text = re.sub(
            r"\$\{(\w+)(?::\?[^}]*|:-([^}]*))?\}",
            lambda found: self.variables.get(found[1], found[2]),
            text,
        )
        return text.replace("$$", "$")

    def path(self, text: str) -> Path:
        return self.directory / self.resolve(text)

    def mounted(self, name: str, target: str) -> Path:
        """Return what is at a path in the container of a service."""
        volumes = SERVICES[name]["volumes"]
        [source] = [each["source"] for each in volumes if each["target"] == target]
        return self.path(source)

    def command(self, name: str) -> list[str]:
        command: list[str] = SERVICES[name]["command"]
        return [word.replace("/bridges/", f"{ROOT}/bridges/") for word in command]

    def environ(self, name: str, **hosts: str) -> dict[str, str]:
        secrets = {name: str(self.path(each["file"])) for name, each in COMPOSE["secrets"].items()}
        environ = {}
        for key, text in SERVICES[name]["environment"].items():
            value = re.sub(r"/run/secrets/(\w+)", lambda found: secrets[found[1]], text)
            for host, address in hosts.items():
                value = value.replace(host, address)
            environ[key] = self.resolve(value)
        for mount in SERVICES[name].get("volumes", ()):
            for key, value in environ.items():
                if value == mount["target"]:
                    environ[key] = str(self.path(mount["source"]))
        environ["CCPIPE_TELEMETRY__LISTEN"] = ""
        config = self.mounted(name, "/etc/ccpipe/ccpipe.toml")
        return {**environ, "CCPIPE_CONFIG": str(config)}
