"""How an interactive command connects to the broker: flags, NATS contexts or the configuration."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

import msgspec

from ccpipe.config import Site, find_config, load
from ccpipe.errors import MissingInputError, UsageError


@dataclass(frozen=True, kw_only=True)
class Login:
    """Connection options of an interactive command."""

    config: Path | None = None
    """Configuration file; without it $CCPIPE_CONFIG, the user's or the system's ccpipe.toml."""

    server: str | None = None
    """URL of the NATS server, such as nats://127.0.0.1:4222; several with commas."""

    user: str | None = None
    """User name at the server."""

    password_file: Path | None = None
    """File that holds the user's password."""

    creds: Path | None = None
    """File with credentials (JWT and seed)."""

    context: str | None = None
    """Context of the program nats that names server and credentials; an empty text is the
    selected one."""

    def site(self) -> Site:
        """Load the configuration, overridden by the NATS context, and that by the other options.

        Raises
        ------
        MissingInputError
            if there is no such context.
        ConfigError, UsageError
            if configuration or context cannot be read.

        """
        flags = dict(read_context(self.context)) if self.context is not None else {}
        if self.server:
            flags["bus.servers"] = self.server.split(",")
        for key, given in (
            ("bus.user", self.user),
            ("bus.password_file", self.password_file),
            ("bus.credentials_file", self.creds),
        ):
            if given is not None:
                flags[key] = str(given)
        return load(self.config or find_config(), Site, flags=flags)


def read_context(name: str) -> Mapping[str, Any]:
    """Return the settings of a context of the program ``nats``; by default the selected one.

    They are stored as JSON in ``~/.config/nats/context/NAME.json``, the name of the selected one
    in ``context.txt`` beside that folder.
    """
    folder = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "nats"
    try:
        name = name or (folder / "context.txt").read_text(encoding="utf-8").strip()
        path = folder / "context" / f"{name}.json"
        given = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except OSError as error:
        raise MissingInputError(f"--context {name}: {error.filename}: {error.strerror}") from None
    except msgspec.DecodeError as error:
        raise UsageError(f"--context {name}: {path}: {error}") from None
    text = {key: value for key, value in given.items() if isinstance(value, str) and value}
    login = text.get("token") or text.get("user", "")
    servers = [_with_login(url, login, text.get("password")) for url in _urls(text)]
    keys = {"creds": "credentials_file", "nkey": "nkey_file", "ca": "ca_file"}
    keys |= {"cert": "cert_file", "key": "key_file"}
    settings = {f"bus.{keys[key]}": value for key, value in text.items() if key in keys}
    return {"bus.servers": servers, **settings}


def _urls(text: Mapping[str, str]) -> list[str]:
    return [url.strip() for url in text.get("url", "nats://127.0.0.1:4222").split(",")]


def _with_login(url: str, user: str, password: str | None) -> str:
    """Insert user and password into a URL that has none."""
    parts = urlsplit(url if "://" in url else f"nats://{url}")
    if not user or "@" in parts.netloc:
        return url
    login = quote(user, safe="") + (f":{quote(password, safe='')}" if password else "")
    return urlunsplit(parts._replace(netloc=f"{login}@{parts.netloc}"))
