"""A bridge as it is shipped: durable, JetStream to the null sink, at 1, 10 and 500 lines a message.

Prints lines per CPU-second of the bridge's own process, start included, so that two versions can
be compared on one machine::

    python -m benchmarks.bench_bridge 200000
"""

import asyncio
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import nats

from benchmarks.bus import _await_port, _free_port, _running
from benchmarks.payloads import payload, realistic
from ccpipe.bus.nats.server import server_program

RECIPE = """
cluster = "bench"
[bus]
servers = ["nats://127.0.0.1:{port}"]
[source]
use = "nats"
subjects = ["metrics"]
durable = "bench-{size}"
drain = "60s"
[sink]
use = "null"
"""


async def publish(port: int, subject: str, count: int, size: int) -> None:
    """Store `count` lines in the stream, `size` lines a message."""
    lines = realistic(50_000)
    connection = await nats.connect(f"nats://127.0.0.1:{port}")
    stream = connection.jetstream()
    await stream.add_stream(name=f"s{size}", subjects=[subject], max_bytes=2**30)
    for start in range(0, count, size):
        place = start % len(lines)
        await connection.publish(subject, payload(lines[place : place + size]))
        if start // size % 500 == 0:
            await connection.flush(60)
    await connection.drain()


def bridge(folder: Path, port: int, size: int) -> tuple[int, float]:
    """Run the bridge until the stream is empty; return lines written and CPU seconds."""
    recipe = folder / f"bench-{size}.toml"
    recipe.write_text(RECIPE.format(port=port, size=size))
    with (folder / f"log-{size}").open("w+") as log:
        command = [sys.executable, "-m", "ccpipe", "bridge", str(recipe), "--for", "1s"]
        child = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=folder)  # noqa: S603
        _, _, usage = os.wait4(child.pid, 0)
        log.seek(0)
        text = log.read()
    try:
        written = int(text.rpartition(" records read, ")[2].split()[0])
    except ValueError:
        raise SystemExit(text) from None
    return written, usage.ru_utime + usage.ru_stime


def main(lines: int) -> None:
    """Print one row for each number of lines a message."""
    with tempfile.TemporaryDirectory() as name:
        folder, port = Path(name), _free_port()
        config = folder / "nats.conf"
        config.write_text(
            f"port: {port}\nhost: 127.0.0.1\njetstream {{ store_dir: {folder}/js }}\n"
        )
        with _running([server_program(), "-c", str(config)]):
            _await_port(port)
            for size in (1, 10, 500):
                asyncio.run(publish(port, "bench.metrics", lines, size))
                written, seconds = bridge(folder, port, size)
                print(
                    f"{size:4} lines a message: {written / seconds / 1e6:.3f} M lines/CPU-s "
                    f"({written} lines, {seconds:.2f} s)"
                )
                asyncio.run(_drop(port, f"s{size}"))


async def _drop(port: int, stream: str) -> None:
    connection = await nats.connect(f"nats://127.0.0.1:{port}")
    await connection.jetstream().delete_stream(stream)
    await connection.close()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200_000)
