"""Importing the bus: nats-py without aiohttp, and no harm to the rest of the process."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ccpipe.bus import _Hidden
from ccpipe.bus.nats.server import server_program
from tests.conftest import eventually, free_port

ROUND_TRIP = """
import asyncio, sys
{first}
import nats

async def main():
    client = await nats.connect("ws://127.0.0.1:{port}", connect_timeout=5)
    subscription = await client.subscribe("a")
    await client.publish("a", b"payload")
    print((await subscription.next_msg(5)).data.decode())
    await client.close()

asyncio.run(main())
"""


def python(code: str) -> str:
    """Run code in a fresh interpreter."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.fixture
async def websocket_port(tmp_path: Path) -> AsyncIterator[int]:
    """Run a real nats-server that accepts websockets."""
    port, websocket = free_port(), free_port()
    conf = tmp_path / "nats.conf"
    conf.write_text(
        f'listen: "127.0.0.1:{port}"\n'
        f'websocket {{ listen: "127.0.0.1:{websocket}", no_tls: true }}\n'
    )
    log = tmp_path / "log"
    server = await asyncio.create_subprocess_exec(server_program(), "-c", str(conf), "-l", str(log))
    try:
        await eventually(lambda: log.exists() and "Server is ready" in log.read_text())
        yield websocket
    finally:
        server.terminate()
        await server.wait()


@pytest.mark.parametrize(
    "first",
    [
        "import ccpipe.bus",
        "import aiohttp, ccpipe.bus",
        "import nats, ccpipe.bus",
        "import ccpipe.bus, aiohttp",
    ],
)
async def test_other_code_can_use_websockets(websocket_port: int, first: str) -> None:
    """nats-py works over a websocket in a process that imported the bus, in any order."""
    code = ROUND_TRIP.format(port=websocket_port, first=first)
    assert await asyncio.to_thread(python, code) == "payload\n"


def test_aiohttp_is_not_imported_before_it_is_used() -> None:
    """A publisher does not pay for a library that it does not use; others can import it."""
    printed = python(
        "import sys, ccpipe.bus.nats.connection\n"
        "print([name for name in sys.modules if name.startswith('aiohttp')])\n"
        "import aiohttp\n"
        "print(aiohttp.ClientSession.__name__, aiohttp is sys.modules['aiohttp'])\n"
        "import nats.aio.transport as transport\n"
        "print(transport.aiohttp.WSMsgType is aiohttp.WSMsgType)\n"
    )
    assert printed == "[]\nClientSession True\nTrue\n"


def test_other_threads_find_it_meanwhile() -> None:
    """Only the thread that imports nats-py does not find aiohttp, and it finds all else."""
    hidden = _Hidden("aiohttp")
    with ThreadPoolExecutor(1) as other:
        assert other.submit(hidden.find_spec, "aiohttp").result() is None
    assert hidden.find_spec("nats") is None
    with pytest.raises(ModuleNotFoundError):
        hidden.find_spec("aiohttp")


def test_without_aiohttp_nats_says_so() -> None:
    """Where it is not installed the client's own message remains."""
    printed = python(
        "import sys\n"
        "sys.modules['aiohttp'] = None\n"
        "import ccpipe.bus, nats.aio.transport as transport\n"
        "print(transport.aiohttp)\n"
    )
    assert printed == "None\n"


@pytest.mark.parametrize("used", ["client.nats.js.api.Header", "nats.js.api.Header"])
def test_jetstream_is_not_imported_before_it_is_used(used: str) -> None:
    """A plain subscription does without; its errors are the same classes for everybody."""
    printed = python(
        "import sys, ccpipe.bus.nats.connection, nats\n"
        "import nats.aio.client as client\n"
        "print([name for name in sys.modules if name.startswith('nats.js')])\n"
        f"print({used}.STATUS.value)\n"
        "from nats.js.errors import NotFoundError\n"
        "print(client.nats.js.errors.NotFoundError is nats.js.errors.NotFoundError"
        " is NotFoundError, nats.js is sys.modules['nats.js'])\n"
    )
    assert printed == "[]\nStatus\nTrue True\n"


def test_its_version_is_known_without_the_metadata_of_packages() -> None:
    """Reading that takes a tenth of the time to the first line of ``tail``; servers show it."""
    printed = python(
        "import sys, ccpipe.bus.nats.connection\n"
        "import nats.aio.client as client\n"
        "print('importlib.metadata' in sys.modules)\n"
        "from importlib.metadata import version\n"
        "print(version('nats-py') == client.__version__, version.__module__)\n"
    )
    assert printed == "False\nTrue importlib.metadata\n"


def test_its_version_is_asked_for_where_no_folder_names_it(tmp_path: Path) -> None:
    """As in a distribution's package."""
    printed = python(
        "import sys, types, ccpipe.bus as bus\n"
        f"sys.modules['nats'] = types.SimpleNamespace(__file__='{tmp_path}/nats/x')\n"
        "sys.modules['importlib.metadata'] = bus._Deferred('importlib.metadata')\n"
        "print(bus._version('nats-py'))\n"
        "from importlib.metadata import version\n"
        "print(version('nats-py'))\n"
    )
    first, second = printed.split()
    assert first == second


def test_who_uses_what_is_deferred_meanwhile_gets_the_module() -> None:
    """Another thread may import it while nats-py is imported."""
    printed = python(
        "import sys\n"
        "from ccpipe.bus import _Deferred\n"
        "sys.modules['colorsys'] = _Deferred('colorsys')\n"
        "from colorsys import rgb_to_hsv\n"
        "print(rgb_to_hsv.__module__, type(sys.modules['colorsys']).__name__)\n"
    )
    assert printed == "colorsys module\n"
