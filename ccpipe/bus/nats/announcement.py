"""Where a running ``ccpipe up`` can be reached, for other commands of the same user."""

import os
from pathlib import Path

import msgspec

from ccpipe.atomic_file import write_private
from ccpipe.config import state_directory


class RunningServer(msgspec.Struct, frozen=True):
    """Address of a ``ccpipe up`` running on this machine; includes the password."""

    url: str
    pid: int
    cluster: str
    directory: str

    def announce(self) -> bool:
        """Return false if a server that was announced earlier is still running: it stays."""
        other = running()
        if other is not None and other.pid != self.pid:
            return False
        path = _announcement()
        path.parent.mkdir(parents=True, exist_ok=True)
        write_private(path, msgspec.json.encode(self).decode())
        return True

    def withdraw(self) -> None:
        if running() == self:
            _announcement().unlink(missing_ok=True)


def running() -> RunningServer | None:
    try:
        found = msgspec.json.decode(_announcement().read_bytes(), type=RunningServer)
        os.kill(found.pid, 0)
    except (OSError, ValueError):
        return None
    return found


def _announcement() -> Path:
    return state_directory() / "up.json"
