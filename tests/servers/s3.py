"""S3-compatible storage for the tests: moto, which keeps objects in memory, and MinIO."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ccpipe.formats.delta import DeltaAddress
from tests.conftest import free_port, until_listening
from tests.paths import ROOT
from tests.servers import stopped_on_failure

TOOL = ROOT / "scripts/minio_server.py"
ACCESS_KEY, SECRET_KEY = "monitoring", "correct horse"
BUCKET = "mon"


class Storage:
    """A server on loopback with a bucket; it can be killed and started again."""

    def __init__(self, directory: Path, command: Sequence[str], port: int) -> None:
        self.command = command
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.log = directory / "storage.log"
        self.secret = directory / "secret.key"
        self.secret.write_text(f"{SECRET_KEY}\n")

    async def start(self) -> None:
        environ = {
            "MINIO_ROOT_USER": ACCESS_KEY, "MINIO_ROOT_PASSWORD": SECRET_KEY,
            "MINIO_UPDATE": "off", "MINIO_BROWSER": "off",
        }  # fmt: skip
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command, stdout=log, stderr=log, env={**os.environ, **environ}
            )
        with stopped_on_failure(self.stop):
            await until_listening(self.port, self.process, self.log)

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()

    @property
    def client(self) -> Any:
        """A client of another library."""
        import boto3

        return boto3.client(
            "s3", endpoint_url=self.url, region_name="us-east-1",
            aws_access_key_id=ACCESS_KEY, aws_secret_access_key=SECRET_KEY,
        )  # fmt: skip

    @property
    def options(self) -> dict[str, Any]:
        """The options of a sink."""
        return {
            "endpoint": self.url, "access_key": ACCESS_KEY, "secret_key_file": str(self.secret),
        }  # fmt: skip

    def address(self, name: str) -> DeltaAddress:
        return DeltaAddress(f"s3://{BUCKET}/{name}", **self.options)

    def open_uploads(self) -> list[Any]:
        """Return the uploads in parts that were begun and not ended."""
        return list(self.client.list_multipart_uploads(Bucket=BUCKET).get("Uploads", []))


async def moto(directory: Path) -> Storage:
    """Start moto, in a process of its own."""
    port = free_port()
    words = ["-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    storage = Storage(directory, [sys.executable, *words], port)
    await storage.start()
    storage.client.create_bucket(Bucket=BUCKET)
    return storage


def minio_program() -> Path:
    done = subprocess.run([sys.executable, str(TOOL), "path"], capture_output=True, check=True)
    return Path(done.stdout.decode().strip())


async def minio(directory: Path) -> Storage:
    """Start a MinIO; skip or fail where it was not compiled."""
    program = minio_program()
    if not program.is_file():
        reason = "MinIO is not compiled: python3 scripts/minio_server.py install"
        if os.environ.get("CCPIPE_TESTS_STRICT"):
            pytest.fail(reason)
        pytest.skip(reason)
    port = free_port()
    words = ["server", "--address", f"127.0.0.1:{port}", str(directory / "objects")]
    storage = Storage(directory, [str(program), *words], port)
    await storage.start()
    storage.client.create_bucket(Bucket=BUCKET)
    return storage
