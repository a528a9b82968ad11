"""``python -m benchmarks.start``: start times of commands, as ratios to Python's.

CPU seconds of whole processes, or until they show a line, in turn with ``python -c pass``, the
median of some rounds: other work on the machine affects CPU time less than time by the clock. The
table is printed. ``--nats`` names the program of NATS, whose ``sub`` does what ``tail`` does::

    go build ./nats     # in github.com/nats-io/natscli

``--before`` names the Python of another environment with ccpipe, such as one of an older commit,
whose commands are measured in turn with ours.
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
LINES = b"load,cluster=a,hostname=n1,type=node value=1 1740027951\n"
COMMANDS = ("--help", "tail --help", "version")


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
                    raise RuntimeError(f"no line from {command}")
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


def commands(python: str, server: str, note: str = "") -> dict[str, Callable[[], float]]:
    """Return what measures each command of an environment's ccpipe, by its name in the table."""
    ccpipe = (python, "-P", "-m", "ccpipe")  # the installed one, not what is in this directory
    tail = (*ccpipe, "tail", "a.b", "--server", server)
    return {
        **{f"ccpipe {each}{note}": partial(whole, (*ccpipe, *each.split())) for each in COMMANDS},
        f"first line of tail{note}": partial(until_first_line, tail),
    }


async def start(
    rounds: int = ROUNDS, nats_program: Path | None = None, before: Path | None = None
) -> dict[str, float]:
    """Return the CPU seconds of each command; a real server has messages for ``tail``."""
    import nats

    from ccpipe.bus.nats.server import NatsServer

    with tempfile.TemporaryDirectory() as directory:
        async with NatsServer(Path(directory), port=free_port()) as server:
            client = await nats.connect(server.url)
            work: dict[str, Callable[[], float]] = {
                "python -c pass": partial(whole, (sys.executable, "-c", "pass")),
                **commands(sys.executable, server.url),
            }
            if before is not None:
                work |= commands(str(before), server.url, ", before")
            if nats_program is not None:
                sub = (str(nats_program), "sub", "a.b", "--server", server.url)
                work["first line of nats sub"] = partial(until_first_line, sub)

            async def publish() -> None:
                while True:
                    await client.publish("a.b", LINES)
                    await asyncio.sleep(0.005)

            publishing = asyncio.create_task(publish())
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
    parser.add_argument("--before", type=Path, help="Python of another environment with ccpipe")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    print("\n".join(markdown(asyncio.run(start(options.rounds, options.nats, options.before)))))


if __name__ == "__main__":
    main()
