"""The messages whose rows a table has, from the commits of its log.

A commit that stores messages of a consumer lists them as ranges, and increments the version of the
consumer's transaction. Of two writers that have read the same version one fails to commit, reads
the other's ranges, and compares again: that alone makes a row be stored once. The version also
counts the consumer's commits, so that it is known when all of them have been read.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from pyarrow.fs import FileSystem

from ccpipe.formats.delta import CommitProperties, DeltaTable, Transaction
from ccpipe.records import MessageRange, merged_ranges

MESSAGES = "ccpipe.messages"
"""Key of a commit's ranges in its metadata."""

MAX_RANGES = 100_000
MAX_COMMITS = 10_000
"""Maximum number of old commits read in search of a consumer's messages."""

CLOCK_SECONDS = 600
"""Tolerated difference between the clocks of the broker and of the bridges."""


def application(consumer: str) -> str:
    """Return the name of a consumer's transactions in the table."""
    return f"ccpipe:{consumer}"


class CommittedMessages:
    """The messages of the commits read so far; older ones are read when they may matter."""

    def __init__(self, files: FileSystem) -> None:
        """Read commits from the `files` of a table."""
        self._files = files
        self._ranges: list[MessageRange] = []
        self._commits: Counter[str] = Counter()  # read, of each consumer
        self._versions: dict[str, int] = {}  # of the transactions of each consumer
        self._first = self._end = -1  # versions that were read
        self._since = 0  # when the first of them was committed, in nanoseconds

    def overlapping(self, table: DeltaTable, ranges: Iterable[MessageRange]) -> list[MessageRange]:
        """Return the stored messages of consumers of `ranges`, as of the table's version."""
        oldest: dict[str, int] = {}
        for each in ranges:
            oldest[each.consumer] = min(each.since, oldest.get(each.consumer, each.since))
        newest = table.version()
        if self._end < 0:
            self._first = self._end = newest + 1
        for version in range(self._end, newest + 1):
            self._read(version)
        self._end = newest + 1
        wanted = {name: self._version(table, name) for name in oldest}
        while self._first > 0 and newest - self._first < MAX_COMMITS:
            if not any(self._may_miss(name, oldest[name], wanted) for name in oldest):
                break
            self._first = self._first - 1 if self._read(self._first - 1) else 0
        return [each for each in self._ranges if each.consumer in oldest]

    def commit_properties(
        self, table: DeltaTable, ranges: Sequence[MessageRange]
    ) -> CommitProperties:
        """Return what a commit says of the messages that it stores, of consumers known here."""
        if not ranges:
            return CommitProperties()
        transactions = [
            Transaction(application(name), self._version(table, name) + 1)
            for name in sorted({each.consumer for each in ranges})
        ]
        return CommitProperties(
            app_transactions=transactions,
            custom_metadata={MESSAGES: [list(each) for each in ranges]},
        )

    def _version(self, table: DeltaTable, consumer: str) -> int:
        """Return the version of a consumer's transactions as of the commits read.

        The library would read the log since its last checkpoint each time.
        """
        if consumer not in self._versions:
            self._versions[consumer] = table.transaction_version(application(consumer)) or 0
        return self._versions[consumer]

    def _may_miss(self, consumer: str, since: int, wanted: Mapping[str, int]) -> bool:
        """Return whether an older commit may have messages of a consumer from a time on."""
        is_older = self._since and self._since < since - CLOCK_SECONDS * 10**9
        return not is_older and self._commits[consumer] < wanted[consumer]

    def _read(self, version: int) -> bool:
        """Read a commit; false if the log has been truncated before it."""
        try:
            with self._files.open_input_stream(f"_delta_log/{version:020}.json") as file:
                text: bytes = file.read()
        except FileNotFoundError:
            return False
        for line in text.splitlines():
            if line.startswith(b'{"commitInfo"'):
                self._add(msgspec.json.decode(line)["commitInfo"])
            elif line.startswith(b'{"txn"'):
                transaction = msgspec.json.decode(line)["txn"]
                consumer = transaction["appId"].removeprefix(application(""))
                if consumer in self._versions:  # older commits are read later
                    known = self._versions[consumer]
                    self._versions[consumer] = max(known, transaction["version"])
        return True

    def _add(self, commit: Mapping[str, Any]) -> None:
        self._since = min(self._since or 2**63, int(commit.get("timestamp", 0)) * 10**6)
        found = msgspec.convert(commit.get(MESSAGES, []), list[MessageRange])
        self._commits.update({each.consumer for each in found})
        self._ranges = merged_ranges([*self._ranges, *found])
        if len(self._ranges) > MAX_RANGES:
            self._ranges.sort(key=lambda each: each.until)
            del self._ranges[:-MAX_RANGES]
