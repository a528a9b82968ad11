"""Files of one process that say what it read, wrote and holds in memory.

Each function returns None if the process ended, may not be read, or has no such file.
Source: Linux, ``Documentation/filesystems/proc.rst``.
"""

import os
import re

from ccpipe.node.linux.process_table import read

_PAGE = os.sysconf("SC_PAGE_SIZE")
_MAX_ENVIRONMENT = 8 * 2**20  # bytes: the kernel allows 6 MiB
_IO = re.compile(rb"rchar: (\d{1,20})\nwchar: (\d{1,20})\n")
_PSS = re.compile(rb"^Pss: +(\d{1,15}) kB$", re.MULTILINE)
_STATM = re.compile(rb"\d{1,15} (\d{1,15}) (\d{1,15}) ")


def parse_transferred(text: bytes) -> tuple[int, int] | None:
    """Read the file ``io``: bytes read and written by calls, also of children waited for."""
    found = _IO.match(text)
    return None if found is None else (int(found[1]), int(found[2]))


def unshared(folder: str) -> int | None:
    """Return the bytes of resident memory that are not shared; None too where that is below 0."""
    found = _STATM.match(read(f"{folder}/statm"))
    if found is None or int(found[2]) > int(found[1]):
        return None
    return (int(found[1]) - int(found[2])) * _PAGE


def environment(folder: str) -> dict[str, str] | None:
    """Return the environment that its program was started with."""
    try:
        with open(f"{folder}/environ", "rb") as file:  # noqa: PTH123 - as the other paths here
            text = file.read(_MAX_ENVIRONMENT)
    except OSError:
        return None
    pairs = (word.decode(errors="replace").partition("=") for word in text.split(b"\0"))
    return {name: value for name, sign, value in pairs if sign}


def proportional(folder: str) -> int | None:
    """Return the proportional set size in bytes: shared pages count by the number of sharers.

    The kernel walks all pages for this: a quarter of a millisecond for a small process.
    """
    text = read(f"{folder}/smaps_rollup") or read(f"{folder}/smaps")  # before Linux 4.14
    sizes = _PSS.findall(text)
    return sum(map(int, sizes)) * 1024 if sizes else None
