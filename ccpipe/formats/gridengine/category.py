"""What a job asked for: the category, which is written like the options of ``qsub``.

>>> parse_category("-q all.q -l h_rt=3600,h_vmem=2G,gpu=1 -pe mpi 4").h_vmem
2147483648
"""

import functools
import math
import re
from collections import deque
from collections.abc import Callable
from typing import TypeVar

import msgspec

EMPTY = frozenset({"", "-", "NONE", "none"})

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12,
          "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}  # fmt: skip
_MEMORY = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)([kKmMgGtT]?)")
_TIME = re.compile(r"(?:(?:([0-9]*):)?([0-9]*):)?([0-9]+(?:\.[0-9]*)?)")
_GPU = ("gpu", "gpus", "ngpus", "gpu_count", "gpucount", "cuda")


class Requests(msgspec.Struct, frozen=True):
    """The options of a category.

    Resources (``-l``) are kept apart by scope: those of the whole job, of the master task and of
    the slave tasks. Values are as written; the properties have units.
    """

    resources: dict[str, str] = {}
    soft: dict[str, str] = {}
    master: dict[str, str] = {}
    slave: dict[str, str] = {}
    queues: tuple[str, ...] = ()
    soft_queues: tuple[str, ...] = ()
    master_queues: tuple[str, ...] = ()
    pe: str = ""
    pe_range: str = ""
    """Slots asked for, such as ``4`` or ``2,3``."""
    project: str = ""
    options: dict[str, str] = {}
    """All other options without their hyphen: ``ckpt``, ``ar``, ``U``, ``u``, ``I``, …"""
    unknown: tuple[str, ...] = ()
    """Words that are not part of an option."""

    @property
    def h_rt(self) -> float | None:
        """The limit on wall-clock time in seconds; ``s_rt`` where there is no ``h_rt``."""
        return _first(self.resources, ("h_rt", "s_rt"), seconds)

    @property
    def h_vmem(self) -> int | None:
        """The limit on memory in bytes, per slot as most sites have it."""
        return _first(self.resources, ("h_vmem", "s_vmem", "mem_free", "h_rss"), size)

    @property
    def gpu(self) -> int | None:
        """Accelerators, per slot or per job as the site defines it; None without a request."""
        return _first({**self.slave, **self.master, **self.resources}, _GPU, size)


@functools.lru_cache(maxsize=4096)  # a site has few categories, and each many records
def parse_category(text: str) -> Requests:
    """Read a category; it never fails: words that are not part of an option go to `unknown`."""
    if text in EMPTY:
        return Requests()
    words = deque(text.split())
    scope, soft = "global", False
    found: dict[str, dict[str, str]] = {"global": {}, "soft": {}, "master": {}, "slave": {}}
    queues: dict[str, list[str]] = {"hard": [], "soft": [], "master": []}
    options: dict[str, str] = {}
    unknown: list[str] = []
    while words:
        word = words.popleft()
        if word in {"-hard", "-soft"}:
            soft = word == "-soft"
        elif word == "-scope" and words:
            scope, soft = words.popleft(), False
        elif word == "-l" and words:
            found.setdefault("soft" if soft else scope, {}).update(_pairs(words.popleft()))
        elif word in {"-q", "-masterq"} and words:
            kind = "master" if "masterq" in word or scope == "master" else "hard"
            queues["soft" if soft else kind] += words.popleft().split(",")
        elif word == "-pe" and len(words) > 1:
            options["pe"], options["pe_range"] = words.popleft(), words.popleft()
        elif word.startswith("-") and words and not words[0].startswith("-"):
            options[word[1:]] = words.popleft()
        else:
            unknown.append(word)
    return Requests(
        resources=found["global"],
        soft=found["soft"],
        master=found["master"],
        slave=found["slave"],
        queues=tuple(queues["hard"]),
        soft_queues=tuple(queues["soft"]),
        master_queues=tuple(queues["master"]),
        pe=options.pop("pe", ""),
        pe_range=options.pop("pe_range", ""),
        project=options.pop("P", ""),
        options=options,
        unknown=tuple(unknown),
    )


def _pairs(text: str) -> dict[str, str]:
    """Read ``a=1,b``; a resource without a value is TRUE, as in qsub."""
    pairs = (pair.partition("=") for pair in text.split(",") if pair)
    return {name: value if equals else "TRUE" for name, equals, value in pairs}


def size(text: str) -> int | None:
    """Read an amount such as ``2G`` (2³⁰) or ``2g`` (10⁹) (sge_types(1), *memory_specifier*)."""
    found = _MEMORY.fullmatch(text)
    number = float(found[1]) * _UNITS[found[2]] if found else math.inf
    return int(number) if math.isfinite(number) else None


def seconds(text: str) -> float | None:
    """Read a time: seconds, or ``hours:minutes:seconds`` (sge_types(1), *time_specifier*)."""
    found = _TIME.fullmatch(text)
    if not found:
        return None
    number = float(found[1] or 0) * 3600 + float(found[2] or 0) * 60 + float(found[3])
    return number if math.isfinite(number) else None


_T = TypeVar("_T")


def _first(
    resources: dict[str, str], names: tuple[str, ...], read: Callable[[str], _T | None]
) -> _T | None:
    values = (read(resources[name]) for name in names if name in resources)
    return next((value for value in values if value is not None), None)
