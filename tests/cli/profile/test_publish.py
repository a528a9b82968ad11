"""``ccpipe profile publish`` on a real broker."""

import asyncio
from pathlib import Path

import nats

from ccpipe.bus.nats.server import NatsServer
from ccpipe.formats.lineprotocol import decode
from tests.cli.command import ccpipe
from tests.conftest import free_port

JOB = Path(__file__).parents[2] / "data" / "slurm_profile" / "merged" / "job_17.h5"


async def test_what_is_published_is_what_is_extracted(nats_server: NatsServer) -> None:
    arguments = ("-i", JOB, "--cluster", "fox", "-s", "Tasks")
    extracted = decode(ccpipe("profile", "extract", *arguments, "--format", "line").out.encode())
    for _ in range(2):
        done = await asyncio.to_thread(
            ccpipe, "profile", "publish", *arguments, "--server", nats_server.url
        )
        assert done.code == 0, done.err
        assert "samples published" in done.err
    client = await nats.connect(nats_server.url)
    stream = client.jetstream()
    count = (await stream.stream_info("ccpipe-fox")).state.messages
    payloads = [(await stream.get_msg("ccpipe-fox", seq=n + 1)).data or b"" for n in range(count)]
    await client.close()
    published = decode(b"".join(payloads))
    assert sorted(map(str, published)) == sorted(map(str, extracted))
    assert len(published) > 10


def test_without_a_broker() -> None:
    done = ccpipe("profile", "publish", "-i", JOB, "--server", f"nats://127.0.0.1:{free_port()}")
    assert done.code == 69
    assert "Traceback" not in done.err
