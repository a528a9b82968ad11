"""Payloads as nodes send them, generated and always the same."""

import random
from collections.abc import Iterator

HOSTS = 64
START = 1_740_027_951
_LEVELS: dict[str, tuple[list[str], list[str | None]]] = {
    "node": (["cpu_load", "mem_used", "net_bytes_in", "net_bytes_out", "nfs4_total"], [None]),
    "socket": (["mem_bw", "cpu_power", "clock_mean"], ["0", "1"]),
    "hwthread": (["flops_any", "cpu_user", "ipc", "clock"], [str(i) for i in range(18)]),
    "accelerator": (
        ["acc_utilization", "acc_mem_used", "acc_power"],
        ["00000000:49:00.0", "00000000:c9:00.0"],
    ),
}


def series() -> Iterator[str]:
    """Yield measurement and tags of all metrics of all nodes, node by node."""
    for host in range(HOSTS):
        for level, (metrics, ids) in _LEVELS.items():
            for identity in ids:
                suffix = "" if identity is None else f",type-id={identity}"
                for metric in metrics:
                    yield f"{metric},cluster=fritz,hostname=f{host:04d},type={level}{suffix}"


def realistic(count: int, *, shuffle: bool = False) -> list[str]:
    """Return lines of about 95 bytes, three of four with 16 or 17 digits, sample by sample.

    Every node sends all its metrics in the same order every ten seconds; `shuffle` mixes them,
    which no program does: it shows the effect of the order.
    """
    chance = random.Random(1)
    keys = list(series())
    lines = [
        f"{keys[i % len(keys)]} value={_value(chance)} {START + 10 * (i // len(keys))}"
        for i in range(count)
    ]
    if shuffle:
        chance.shuffle(lines)
    return lines


def new_series(start: int, stop: int) -> Iterator[str]:
    """Yield lines of one process each, as from jobs that start and end."""
    for number in range(start, stop):
        yield (
            f"proc_cpu,cluster=fritz,hostname=f{number % HOSTS:04d},pid={number},stype=process,"
            f"type=node value={number % 100}.5 {START}"
        )


def _value(chance: random.Random) -> str:
    kind = chance.random()
    if kind < 0.74:
        return repr(chance.random() * 10 ** chance.randint(0, 4))
    if kind < 0.87:
        return str(chance.randint(0, 10**6))
    return f"{100 * chance.random():.2f}"


def payload(lines: list[str]) -> bytes:
    """Join lines into one payload."""
    return "".join(f"{line}\n" for line in lines).encode()


def first_bytes(lines: list[str], size: int) -> list[str]:
    """Return as many lines as fit into `size` bytes."""
    total = 0
    for count, line in enumerate(lines):
        total += len(line) + 1
        if total > size:
            return lines[:count]
    return lines
