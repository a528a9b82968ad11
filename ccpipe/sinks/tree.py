"""Jobanalyzer's directory tree: Sonar's envelopes by cluster, day, type and node."""

import asyncio
import contextlib
import hashlib
import logging
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import msgspec

from ccpipe.errors import EncodeError, RejectedError
from ccpipe.formats.sonar import Envelope, Envelopes, WriteProfile, encode
from ccpipe.formats.sonar.file_tree import path_of
from ccpipe.pipeline import Limits, Sink
from ccpipe.sinks.disk import AppendFile, check_directory, disk_errors, make_directory

log = logging.getLogger(__name__)

MAX_TORN = 64 * 2**20
"""Bytes at the end of a file that are searched for the start of a torn line."""


class TreeSink(Sink[Envelopes]):
    """Appends each envelope to the file of its cluster, day, type and node, synced to disk.

    Several processes may write to one tree.
    """

    takes = Envelopes

    limits = Limits(max_records=10_000, max_wait=5.0, write_timeout=0.0)

    def __init__(
        self,
        *,
        dir: str,  # noqa: A002 - the recipe's word
        cluster_directories: bool = True,
        profile: WriteProfile = "jobanalyzer",
    ) -> None:
        """Choose the tree.

        Parameters
        ----------
        dir
            The root: for Jobanalyzer its ``data`` directory. Missing
            directories are created.
        cluster_directories
            One directory per cluster, as in Jobanalyzer; otherwise the root contains the years, as
            Sonar writes it for a single cluster.
        profile
            Target reader of the envelopes: ``jobanalyzer``, ``sonar``, or ``spec``, which omits
            nothing.

        """
        self.root = Path(dir).expanduser()
        self.cluster_directories = cluster_directories
        self.profile = profile
        self._busy = threading.Lock()  # the thread of a cancelled write may still run
        self._written: set[bytes] = set()
        """Digests of lines that a failed write had already appended to other files."""

    async def check(self) -> None:
        check_directory(self.root)

    async def __aenter__(self) -> Self:
        with disk_errors(self.root, opening=True):
            await asyncio.to_thread(make_directory, self.root)
        return self

    async def write(self, records: Sequence[Envelope]) -> None:
        """Append the envelopes and sync them to disk.

        Lines appended before an error are not appended again when the write is repeated.
        """
        await asyncio.to_thread(self._write, self._by_file(records))

    def _by_file(self, records: Sequence[Envelope]) -> dict[Path, list[bytes]]:
        found: dict[Path, list[bytes]] = {}
        bad: dict[int, str] = {}
        for index, envelope in enumerate(records):
            try:
                path = self.root / path_of(envelope, cluster_directories=self.cluster_directories)
                found.setdefault(path, []).append(encode(envelope, profile=self.profile))
            except EncodeError as error:
                bad[index] = str(error)
        if bad:
            reason = next(iter(bad.values()))
            raise RejectedError(reason, [index for index in bad if bad[index] == reason])
        return found

    def _write(self, files: dict[Path, list[bytes]]) -> None:
        with self._busy:
            mine: set[bytes] = set()
            for path, lines in files.items():
                ids = [_digest(path, line) for line in lines]
                rest = [
                    line for line, id_ in zip(lines, ids, strict=True) if id_ not in self._written
                ]
                if rest:
                    with disk_errors(path), contextlib.closing(_EnvelopeFile(path)) as file:
                        file.append(b"".join(rest))
                self._written.update(ids)
                mine.update(ids)
            self._written -= mine


def _digest(path: Path, line: bytes) -> bytes:
    return hashlib.blake2b(os.fsencode(path) + b"\0" + line, digest_size=16).digest()


class _EnvelopeFile(AppendFile):
    """A file of envelopes, where a torn line would make Jobanalyzer reject the whole file."""

    def repair(self, file: int) -> None:
        """Remove an incomplete envelope at the end; complete another line without a line end."""
        size = os.fstat(file).st_size
        start = max(0, size - MAX_TORN)
        if not size or os.pread(file, 1, size - 1) == b"\n":
            return
        end = os.pread(file, size - start, start)
        tail = end[end.rfind(b"\n") + 1 :]
        if _is_torn(tail):
            log.warning("%s: removed %d bytes of an envelope cut off", self.path, len(tail))
            os.ftruncate(file, size - len(tail))
        else:
            os.write(file, b"\n")


def _is_torn(line: bytes) -> bool:
    """Return whether a line is an incomplete envelope, which was not acknowledged.

    The last line of an envelope written over several lines is not.
    """
    if not line.startswith(b"{"):
        return False
    try:
        msgspec.json.decode(line, type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError):
        return True
    return False
