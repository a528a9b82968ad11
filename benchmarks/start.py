"""``python -m benchmarks.start``: how long commands take to begin, as ratios to Python.

CPU seconds of whole processes, or until they show a line, in turn with ``python -c pass``, the
median of some rounds: other work on the machine affects CPU time less than time by the clock. The
table is printed. ``--nats`` names the program of NATS, whose ``sub`` does what ``tail`` does::

    go build ./nats     # in github.com/nats-io/natscli
"""

import argparse
import asyncio
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from benchmarks.timing import thread_seconds
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


def _environment() -> dict[str, str]:
    environment = {**os.environ}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # or every start might compile everything
    return environment


def whole(command: tuple[str, ...]) -> float:
    """Run a command to its end; return the CPU seconds that it took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(  # noqa: S603 - the commands above
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
        env=_environment(),
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def until_first_line(command: tuple[str, ...]) -> float:
    """Run a command until it shows a line; return the CPU seconds that all its threads took."""
    with subprocess.Popen(  # noqa: S603 - the commands of start()
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=_environment()
    ) as process:
        assert process.stdout is not None
        try:
            while LINES.split(b",")[0] not in process.stdout.readline():
                if process.poll() is not None:
                    raise RuntimeError(f"no line came from {command}")
            return thread_seconds(process.pid)
        finally:
            process.kill()


def measure(work: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """Return the median of what each returns, after a run that compiles what is new."""
    found: dict[str, list[float]] = {name: [] for name in work}
    for once in work.values():
        once()
    for _ in range(rounds):
        for name, once in work.items():
            found[name].append(once())
    return {name: statistics.median(times) for name, times in found.items()}


async def start(rounds: int = ROUNDS, nats_program: Path | None = None) -> dict[str, float]:
    """Return the CPU seconds of each command; a real server has messages for ``tail``."""
    import nats

    from ccpipe.bus.nats.server import NatsServer

    with tempfile.TemporaryDirectory() as folder:
        async with NatsServer(Path(folder), port=free_port()) as server:
            client = await nats.connect(server.url)
            listeners: dict[str, tuple[str, ...]] = {
                "first line of tail": (*CCPIPE, "tail", "a.b", "--server", server.url)
            }
            if nats_program is not None:
                sub = (str(nats_program), "sub", "a.b", "--server", server.url)
                listeners["first line of nats sub"] = sub

            async def publish() -> None:
                while True:
                    await client.publish("a.b", LINES)
                    await asyncio.sleep(0.005)

            publishing = asyncio.create_task(publish())
            work = {
                **{name: partial(whole, command) for name, command in COMMANDS.items()},
                **{name: partial(until_first_line, words) for name, words in listeners.items()},
            }
            times = await asyncio.to_thread(measure, work, rounds)
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


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nats", type=Path, help="its program, to measure it too")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    print("\n".join(markdown(asyncio.run(start(options.rounds, options.nats)))))


if __name__ == "__main__":
    main()
