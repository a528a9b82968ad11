"""Configuration files, and the files that configuration refers to."""

import base64
import errno
import os
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ccpipe.errors import ConfigError, CreateError, MissingInputError, create_reason


def find_config() -> Path | None:
    """Return the configuration file: ``$CCPIPE_CONFIG``, else the user's, else the system's."""
    if named := os.environ.get("CCPIPE_CONFIG"):
        return Path(named)
    home = Path(os.environ.get("XDG_CONFIG_HOME") or _home() / ".config")
    for path in (home / "ccpipe" / "ccpipe.toml", Path("/etc/ccpipe/ccpipe.toml")):
        if path.is_file():
            return path
    return None


def state_directory() -> Path:
    """Return the user's directory for persistent data (XDG state home)."""
    return Path(os.environ.get("XDG_STATE_HOME") or _home() / ".local" / "state") / "ccpipe"


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError:  # a container's user may have no home
        return Path("/")


def read_secret(option: str, path: str) -> str:
    """Read a secret from its file, without the line end; raises ConfigError naming the option."""
    if not path:
        raise ConfigError(f"{option}: is missing")
    secret = read_text(option, path).strip()
    if not secret or not secret.isprintable():
        raise ConfigError(f"{option}: {path} is not one line of text")
    return secret


def check_credentials(user: str, password_file: str, token_file: str) -> None:
    """Check options of HTTP credentials that exclude or need each other; raises ConfigError."""
    if bool(user) != bool(password_file):
        raise ConfigError("user and password_file go together")
    if user and token_file:
        raise ConfigError("token_file: a user is configured too; use only one of them")


def authorization(
    user: str, password_file: str, token_file: str, scheme: str = "Bearer"
) -> dict[str, str]:
    """Return the header ``Authorization``, if there are credentials; raises ConfigError.

    `scheme` precedes the token.
    """
    if token_file:
        return {"Authorization": f"{scheme} {read_secret('token_file', token_file)}"}
    if user:
        password = read_secret("password_file", password_file)
        pair = base64.b64encode(f"{user}:{password}".encode()).decode()
        return {"Authorization": f"Basic {pair}"}
    return {}


def read_text(option: str, path: str) -> str:
    """Read the file that an option names; raises ConfigError naming the option."""
    try:
        return Path(path).expanduser().read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{option}: {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{option}: {path}: {error}") from None


def make_directory_of(option: str, path: Path) -> None:
    """Create the directory of a file that an option names, if it is missing; raises CreateError."""
    directory = path.parent
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if not os.access(directory, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        reason = create_reason(error)
        raise CreateError(
            f"{option}: {path}: no file can be created in {directory} ({reason}): create that "
            f"directory for this user, or set {option} to another path"
        ) from None


def listen_address(option: str, listen: str) -> tuple[str, int]:
    """Return host and port of ``host:port``; raises ConfigError naming the option."""
    try:
        address = urlsplit(f"//{listen}")
        if address.port is None or address.path or not address.hostname:
            raise ValueError("expected an address and a port, as in 127.0.0.1:9401")
    except ValueError as error:
        raise ConfigError(f"{option}: {listen!r}: {error}") from None
    return address.hostname, address.port


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file; raises MissingInputError, and ConfigError naming file and place."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise MissingInputError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not a text file: byte {error.start} is not UTF-8") from None
    except (ValueError, RecursionError) as error:  # syntax, huge numbers, nesting depth
        raise ConfigError(f"{path}: not TOML: {error}") from None
