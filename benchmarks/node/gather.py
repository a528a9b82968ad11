"""Cost of a poll of a step's tasks, compared with psutil in one run.

::

    python -m benchmarks.node.gather            # 500 processes in 100 tasks
    python -m benchmarks.node.gather --seconds 10

Both read the same real processes: a shell and four children for each task. The table has the
minimum and the median of the polls in milliseconds of this process's own processor time, the share
of a core that polling each second takes, and the memory of the process before psutil is loaded.
The processes sleep; where all of them compute, a poll takes 3 to 4 ms more, in Python: each line
that changed is parsed again. What the kernel takes to write the lines is the same.
"""

import argparse
import os
import resource
import statistics
import subprocess
import time
from collections.abc import Callable

from ccpipe.node.gather.jobacct import TaskId, TaskPoller

POLLS = 15
CHILDREN = 4
SHELL = " & ".join(["sleep 600"] * CHILDREN) + " & wait"


def start_tasks(count: int) -> list["subprocess.Popen[bytes]"]:
    """Start shells with children, each in a session of its own."""
    shell = ["/bin/sh", "-c", SHELL]
    tasks = [subprocess.Popen(shell, start_new_session=True) for _ in range(count)]  # noqa: S603
    wanted = count * (1 + CHILDREN)
    poller = make_poller(tasks)
    while sum(map(len, pids_of(poller).values())) < wanted:
        time.sleep(0.1)
    poller.end_poll()
    return tasks


def end_tasks(tasks: list["subprocess.Popen[bytes]"]) -> None:
    """End what was started."""
    for task in tasks:
        os.killpg(task.pid, 9)
        task.wait()


def make_poller(tasks: list["subprocess.Popen[bytes]"]) -> TaskPoller:
    """Return a poller of the tasks that polls on request."""
    poller = TaskPoller()
    poller.set_proctrack_container_id(os.getpid())
    poller.start_poll(0)
    for number, task in enumerate(tasks):
        poller.add_task(task.pid, TaskId(number, 0))
    return poller


def pids_of(poller: TaskPoller) -> dict[int, tuple[int, ...]]:
    """Return the processes of each task."""
    poller.poll()
    return poller.pids()


def costs(poll: Callable[[], object]) -> list[float]:
    """Return the milliseconds of processor time of some polls, after a first one."""
    poll()
    found = []
    for _ in range(POLLS):
        before = time.process_time()
        poll()
        found.append((time.process_time() - before) * 1000)
    return found


def with_psutil(tasks: list["subprocess.Popen[bytes]"]) -> Callable[[], object]:
    """Return a poll that uses psutil as its documentation suggests."""
    import psutil

    def poll() -> int:
        total = 0
        for task in tasks:
            root = psutil.Process(task.pid)
            for process in (root, *root.children(recursive=True)):
                with process.oneshot():
                    times, memory = process.cpu_times(), process.memory_info()
                    io = process.io_counters()
                    total += memory.rss + memory.vms + io.read_count + int(times.user)
        return total

    return poll


def with_one_walk(tasks: list["subprocess.Popen[bytes]"]) -> Callable[[], object]:
    """Return a poll that uses psutil well: one walk over all processes, trees by parent."""
    import psutil

    attributes = ["pid", "ppid", "cpu_times", "memory_info", "io_counters"]

    def poll() -> int:
        table = {process.pid: process.info for process in psutil.process_iter(attributes)}
        roots = {task.pid for task in tasks}
        total = 0
        for info in table.values():
            if info["pid"] in roots or info["ppid"] in roots:
                total += info["memory_info"].rss + info["io_counters"].read_count
        return total

    return poll


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tasks", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=5, help="how long to poll each second")
    options = parser.parse_args()
    others = sum(name.isdecimal() for name in os.listdir("/proc"))  # noqa: PTH208
    tasks = start_tasks(options.tasks)
    try:
        poller = make_poller(tasks)
        rows = {"ccpipe": costs(poller.poll)}
        poller.end_poll()
        used = process_share(tasks, options.seconds)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        rows["psutil, one walk"] = costs(with_one_walk(tasks))
        rows["psutil, children()"] = costs(with_psutil(tasks))
    finally:
        end_tasks(tasks)
    ours = statistics.median(rows["ccpipe"])
    count = len(tasks) * (1 + CHILDREN)
    print(f"{count} processes in {len(tasks)} tasks; {others} others on the machine")
    print("way                  min ms  median ms   ratio")
    for name, found in rows.items():
        median = statistics.median(found)
        print(f"{name:<20} {min(found):6.1f} {median:10.1f} {median / ours:7.1f}")
    print(f"polling each second: {used:.1%} of a core; memory {memory:.0f} MB")


def process_share(tasks: list["subprocess.Popen[bytes]"], seconds: float) -> float:
    """Return the share of a core that polling each second takes."""
    poller = TaskPoller()
    poller.set_proctrack_container_id(os.getpid())
    poller.start_poll(1)
    for number, task in enumerate(tasks):
        poller.add_task(task.pid, TaskId(number, 0))
    before, begin = time.process_time(), time.monotonic()
    time.sleep(seconds)
    share = (time.process_time() - before) / (time.monotonic() - begin)
    poller.end_poll()
    return share


if __name__ == "__main__":
    main()
