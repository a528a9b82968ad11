"""``python -m benchmarks.bench_start``: how long commands take to begin, as ratios to Python.

CPU seconds of whole processes, in turn with ``python -c pass``, the median of some rounds: other
work on the machine affects CPU time less than time by the clock. The table is printed.
"""

import asyncio
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROUNDS = 15
CCPIPE = (sys.executable, "-m", "ccpipe")
LINES = b"load,cluster=a,hostname=n1,type=node value=1 1740027951\n"
COMMANDS = {
    "python -c pass": (sys.executable, "-c", "pass"),
    "ccpipe --help": (*CCPIPE, "--help"),
    "ccpipe tail --help": (*CCPIPE, "tail", "--help"),
    "ccpipe version": (*CCPIPE, "version"),
}


def cpu_seconds(command: tuple[str, ...]) -> float:
    """Run a command to its end; return the CPU time that it took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(  # noqa: S603 - the commands above
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(commands: dict[str, tuple[str, ...]]) -> dict[str, float]:
    """Return the median of each command's CPU seconds."""
    found: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(ROUNDS):
        for name, command in commands.items():
            found[name].append(cpu_seconds(command))
    return {name: statistics.median(times) for name, times in found.items()}


async def main() -> None:
    """Measure, with a real server that has a message for ``tail``."""
    import nats

    from ccpipe.bus.nats.server import Server

    with tempfile.TemporaryDirectory() as folder:
        async with Server(Path(folder), port=int(os.environ.get("PORT", "14229"))) as server:
            client = await nats.connect(server.url)
            tail = (*CCPIPE, "tail", "a.b", "--count", "1", "-o", "line", "--server", server.url)

            async def publish() -> None:
                while True:
                    await client.publish("a.b", LINES)
                    await asyncio.sleep(0.005)

            publishing = asyncio.create_task(publish())
            times = await asyncio.to_thread(measure, {**COMMANDS, "first line of tail": tail})
            publishing.cancel()
            await asyncio.gather(publishing, return_exceptions=True)
            await client.close()
    base = times["python -c pass"]
    print("| command | CPU ms | times python -c pass |\n|---|---:|---:|")
    for name, seconds in times.items():
        print(f"| {name} | {seconds * 1e3:.0f} | {seconds / base:.1f} |")


if __name__ == "__main__":
    asyncio.run(main())
