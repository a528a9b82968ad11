"""``python -m benchmarks.start``: how long commands take to begin, as ratios to Python.

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

from tests.conftest import free_port

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
    environment = {**os.environ}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # or every start might compile everything
    subprocess.run(  # noqa: S603 - the commands above
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True, env=environment
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(commands: dict[str, tuple[str, ...]], rounds: int) -> dict[str, float]:
    """Return the median of each command's CPU seconds, after a run that compiles what is new."""
    found: dict[str, list[float]] = {name: [] for name in commands}
    for command in commands.values():
        cpu_seconds(command)
    for _ in range(rounds):
        for name, command in commands.items():
            found[name].append(cpu_seconds(command))
    return {name: statistics.median(times) for name, times in found.items()}


async def start(rounds: int = ROUNDS) -> dict[str, float]:
    """Return the CPU seconds of each command; a real server has messages for ``tail``."""
    import nats

    from ccpipe.bus.nats.server import Server

    with tempfile.TemporaryDirectory() as folder:
        async with Server(Path(folder), port=free_port()) as server:
            client = await nats.connect(server.url)
            tail = (*CCPIPE, "tail", "a.b", "--count", "1", "-o", "line", "--server", server.url)

            async def publish() -> None:
                while True:
                    await client.publish("a.b", LINES)
                    await asyncio.sleep(0.005)

            publishing = asyncio.create_task(publish())
            commands = {**COMMANDS, "first line of tail": tail}
            times = await asyncio.to_thread(measure, commands, rounds)
            publishing.cancel()
            await asyncio.gather(publishing, return_exceptions=True)
            await client.close()
    return times


def markdown(times: dict[str, float]) -> list[str]:
    """Return the table."""
    base = next(iter(times.values()))
    return [
        "| command | CPU ms | times python -c pass |",
        "|---|---:|---:|",
        *(f"| {name} | {each * 1e3:.0f} | {each / base:.1f} |" for name, each in times.items()),
    ]


if __name__ == "__main__":
    print("\n".join(markdown(asyncio.run(start()))))
