"""What a job asked for: the category, which is written like the options of ``qsub``.

>>> parse_category("-q all.q -l h_rt=3600,h_vmem=2G,gpu=1 -pe mpi 4").h_vmem
2147483648
"""

import functools
import math
import re
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
    """The hard resource requests (``-l``) of a category, by scope; values are as written."""

    resources: dict[str, str] = {}
    """Those of the whole job."""
    master: dict[str, str] = {}
    slave: dict[str, str] = {}

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
    """Read the resources of a category; it never fails: all else is left out."""
    if text in EMPTY:
        return Requests()
    words = iter(text.split())
    scope, is_soft = "global", False
    found: dict[str, dict[str, str]] = {"global": {}, "master": {}, "slave": {}}
    for word in words:
        if word in {"-hard", "-soft"}:
            is_soft = word == "-soft"
        elif word == "-scope":
            scope, is_soft = next(words, ""), False
        elif word == "-l" and (pairs := _pairs(next(words, ""))) and not is_soft:
            found.setdefault(scope, {}).update(pairs)
    return Requests(found["global"], found["master"], found["slave"])


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
