"""Lines of accounting by job number, found without reading whole lines.

>>> lines_of_jobs(b"a.q:n1:g:anna:sim:17:x\\na.q:n1:g:anna:sim:18:x\\n", [18])
([23], [2], 2)
"""

import re
from collections.abc import Collection

from ccpipe.formats.gridengine.kernel import KERNEL
from ccpipe.formats.gridengine.reader import split_lines

_NUMBERED = re.compile(
    rb'(?:\{"job_number":(?P<json>0|[1-9][0-9]{0,14}),)'
    rb"|(?!\{\"job_number\":)(?![^:]*:acct:)(?:[^:]*:){5}(?P<classic>0|[1-9][0-9]{0,14}):"
)
"""A line that begins with a job number in its usual place and spelling."""


def lines_of_jobs(payload: bytes, jobs: Collection[int]) -> tuple[list[int], list[int], int]:
    """Find the lines that may be records of these jobs.

    These are all lines except those whose job number is plainly another one: comments and damaged
    lines are among them.

    Returns the offsets of these lines, their numbers from 1, and the number of all lines.
    """
    if KERNEL is not None:
        found: tuple[list[int], list[int], int] = KERNEL.search(payload, jobs)
        return found
    return search_in_python(payload, jobs)


def search_in_python(payload: bytes, jobs: Collection[int]) -> tuple[list[int], list[int], int]:
    """Do the same line by line; what the compiled kernel must agree with."""
    starts, numbers = [], []
    offset = number = 0
    for number, line in enumerate(split_lines(payload), 1):
        found = _NUMBERED.match(line) if offset + len(line) < len(payload) else None
        if found is None or int(found[1] or found[2]) in jobs:
            starts.append(offset)
            numbers.append(number)
        offset += len(line) + 1
    return starts, numbers, number
