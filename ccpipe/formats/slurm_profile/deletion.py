"""Deletes input of a merge once the output is known to hold all of it."""

import fcntl
import itertools
import os
from pathlib import Path

from ccpipe.formats.slurm_profile.errors import ProfileError
from ccpipe.formats.slurm_profile.reader import Profile, open_profile
from ccpipe.formats.slurm_profile.table import Table

Identity = tuple[int, int, int, int]
"""Device, inode, size and time of change."""


def delete_merged(path: Path, identity: Identity, merged: Profile) -> str:
    """Delete a file that `merged` replaces; return why it stays, or nothing.

    `identity` is what the file was when it was merged.
    """
    try:
        with open_profile(path) as profile:
            reason = _why_keep(profile, merged)
            if not reason and identity != profile.identity:
                reason = "it was written to meanwhile"
        if not reason:
            path.unlink()
    except (OSError, ProfileError) as error:
        return str(error)
    return reason


def _why_keep(profile: Profile, merged: Profile) -> str:
    if profile.damage:
        return "not all of it can be read"
    if profile.closed is False:
        return "its writer has not finished it"
    if _is_locked(Path(profile.path)):
        return "a process has it open for writing"
    there = {(part.step, part.node, part.start_time): part for part in merged.node_steps}
    for node_step in profile.node_steps:
        copy = there.get((node_step.step, node_step.node, node_step.start_time))
        if copy is None:
            return f"the output does not have step {node_step.step} of {node_step.node}"
        theirs = {(table.series, table.task): table for table in merged.tables_of(copy)}
        for table in profile.tables_of(node_step):
            other = theirs.get((table.series, table.task))
            if other is None or not _same_rows(table, other):
                return f"the output has other rows in {table.path}"
    return ""


def _same_rows(first: Table, second: Table) -> bool:
    """Return whether two tables are equal to the last bit."""
    if first.dtype != second.dtype:
        return False
    pairs = itertools.zip_longest(first.blocks(), second.blocks())
    return all(a is not None and b is not None and a.tobytes() == b.tobytes() for a, b in pairs)


def _is_locked(path: Path) -> bool:
    """Return whether libhdf5 has the file open for writing, in Slurm's plug-in for one."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False
