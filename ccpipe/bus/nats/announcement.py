"""Where a running ``ccpipe up`` of this user can be reached, for the user's other commands."""

import os
from pathlib import Path

import msgspec

from ccpipe.config import state_folder


class RunningServer(msgspec.Struct, frozen=True):
    """Where a ``ccpipe up`` on this machine can be reached; holds the password."""

    url: str
    pid: int
    cluster: str
    folder: str

    def announce(self) -> bool:
        """Announce it to commands of the same user, in a file that only the user can read.

        Where another one runs that was announced before, that one stays; return whether it is us.
        """
        other = running()
        if other is not None and other.pid != self.pid:
            return False
        path = _announcement()
        path.parent.mkdir(parents=True, exist_ok=True)
        write_private(path, msgspec.json.encode(self).decode())
        return True

    def withdraw(self) -> None:
        """Withdraw the announcement, unless another one has replaced it."""
        if running() == self:
            _announcement().unlink(missing_ok=True)


def running() -> RunningServer | None:
    """Return this user's running ``ccpipe up``, if there is one."""
    try:
        found = msgspec.json.decode(_announcement().read_bytes(), type=RunningServer)
        os.kill(found.pid, 0)
    except (OSError, ValueError):
        return None
    return found


def _announcement() -> Path:
    return state_folder() / "up.json"


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, whole or not at all."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:  # noqa: PTH123
        file.write(text)
    draft.replace(path)
