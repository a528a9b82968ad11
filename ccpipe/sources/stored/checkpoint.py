"""The selection of a backfill, and the file that records its progress."""

from dataclasses import dataclass
from pathlib import Path

import msgspec

from ccpipe.atomic_file import replace_content
from ccpipe.errors import ConfigError, UnavailableError

EARLIEST, LATEST = -(2**63), 2**63 - 1
"""Bounds of an open selection; a line without a time is the earliest."""


@dataclass(frozen=True)
class BackfillSelection:
    """What to read."""

    start: int
    """Nanoseconds since the epoch."""
    end: int
    """End of the range, exclusive."""
    nodes: frozenset[str] = frozenset()
    """Empty for all, including records of no node."""


class BackfillState(msgspec.Struct, forbid_unknown_fields=True):
    """Progress of a backfill."""

    source: str
    """Source and destination, as the user named them."""
    start: int
    end: int
    nodes: list[str]
    done: int
    """Everything before this is written: a time in nanoseconds since the epoch, or a line."""


class BackfillCheckpoint:
    """The state of a backfill, in a file if there is one."""

    def __init__(
        self, path: Path | None, name: str, selection: BackfillSelection, done: int
    ) -> None:
        """Load the file at `path`; without one start at `done`.

        Raises ConfigError if it is the checkpoint of another backfill.
        """
        self.path = path
        self.state = BackfillState(
            name, selection.start, selection.end, sorted(selection.nodes), done
        )
        if path is not None and path.exists():
            self._resume(path)

    def _resume(self, path: Path) -> None:
        try:
            found = msgspec.json.decode(path.read_bytes(), type=BackfillState)
        except (OSError, msgspec.MsgspecError) as error:
            raise ConfigError(f"{path}: {error}") from None
        if (found.source, found.nodes) != (self.state.source, self.state.nodes):
            raise ConfigError(f"{path} is the checkpoint of another backfill; remove it, or name")
        self.state.done = found.done  # while `end` advances if a bridge writes to the store

    def write(self) -> None:
        """Write the state to the file atomically, synced; raises UnavailableError."""
        if self.path is None:
            return
        try:
            replace_content(self.path, msgspec.json.encode(self.state))
        except OSError as error:
            raise UnavailableError(f"{self.path}: {error.strerror}") from None
