"""Which series a step profiles, and how often each is sampled.

Source: srun(1), ``--profile`` and ``--acctg-freq``; Slurm's ``ACCT_GATHER_PROFILE_*``.
"""

import difflib
import enum
import re

from ccpipe.errors import UsageError


class SeriesSelection(enum.IntFlag):
    """Series, as the bits that Slurm uses."""

    NOT_SET = 0
    NONE = 1
    ENERGY = 2
    TASK = 4
    LUSTRE = 8
    NETWORK = 16
    ALL = 0xFFFFFFFF

    def includes(self, series: "SeriesSelection") -> bool:
        """Return whether a series is profiled; for NOT_SET, whether any is."""
        if self in (SeriesSelection.NOT_SET, SeriesSelection.NONE):
            return False
        return series is SeriesSelection.NOT_SET or bool(self & series)


_WORDS = {
    "none": SeriesSelection.NONE,
    "all": SeriesSelection.ALL,
    "energy": SeriesSelection.ENERGY,
    "task": SeriesSelection.TASK,
    "lustre": SeriesSelection.LUSTRE,
    "filesystem": SeriesSelection.LUSTRE,
    "network": SeriesSelection.NETWORK,
}

SERIES = {
    SeriesSelection.ENERGY: "Energy",
    SeriesSelection.TASK: "Tasks",
    SeriesSelection.LUSTRE: "Filesystem",
    SeriesSelection.NETWORK: "Network",
}
"""The names of the tables."""

_FREQUENCIES = ("task", "energy", "filesystem", "network")
_NUMBER = re.compile(r"\d{1,7}(?:\.\d{1,3})?", re.ASCII)


def parse_selection(text: str) -> SeriesSelection:
    """Read a list such as ``task,energy``; in it ``none`` wins, then ``all``.

    ``filesystem``, as the manual has it, and ``lustre``, as Slurm's parser has it, are the same.
    """
    found = SeriesSelection.NOT_SET
    words = [word.strip().lower() for word in text.split(",")]
    for word in words:
        if word not in _WORDS:
            raise UsageError(f"not a series: {word!r:.40}{_hint(word, list(_WORDS))}")
        found |= _WORDS[word]
    return SeriesSelection.NONE if "none" in words else found


def parse_frequencies(text: str) -> dict[str, float]:
    """Read seconds between samples: ``task=1,energy=5``; a number alone is of tasks, 0 is never."""
    found: dict[str, float] = {}
    for part in filter(None, text.split(",")):
        name, sign, value = part.strip().rpartition("=")
        name = name.strip().lower() if sign else "task"
        name = "filesystem" if name == "lustre" else name
        if name not in _FREQUENCIES:
            raise UsageError(f"not a series: {name!r:.40}{_hint(name, list(_FREQUENCIES))}")
        if not _NUMBER.fullmatch(value.strip()):
            raise UsageError(f"{name}: not a number of seconds: {value!r:.40}")
        found[name] = float(value)
    return found


def _hint(word: str, known: list[str]) -> str:
    close = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else f" (expected {', '.join(known)})"
