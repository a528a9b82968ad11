"""Our identity for the broker: the client's options from the configuration."""

import functools
import importlib.util
import re
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import nats.errors

from ccpipe.bus.subjects import escape
from ccpipe.config import Bus, read_secret, read_text
from ccpipe.config.converter import mask
from ccpipe.errors import ConfigError, MissingExtra
from ccpipe.tls import tls_context

SCHEMES = ("nats", "tls", "ws", "wss")


class TlsError(nats.errors.Error):
    """TLS is required and the server does not offer it; nothing was sent."""


def client_options(bus: Bus) -> dict[str, Any]:
    """Convert credentials and certificates to options of the client; raises ConfigError."""
    options: dict[str, Any] = {}
    inbox = bus.user
    if bus.credentials_file or bus.nkey_file:
        try:
            import nkeys  # noqa: F401
        except ImportError:
            raise MissingExtra("nkeys", "nkeys") from None
    elif bus.user:
        read_secret("bus.password_file", bus.password_file)  # fail early
        options["user"] = bus.user
        options["password"] = functools.partial(_password, bus.password_file)
    if bus.credentials_file:
        if not Path(bus.credentials_file).is_file():
            raise ConfigError(f"bus.credentials_file: {bus.credentials_file}: no such file")
        if "BEGIN USER NKEY SEED" not in read_text("bus.credentials_file", bus.credentials_file):
            raise ConfigError(
                f"bus.credentials_file: {bus.credentials_file}: contains no user seed"
            )
        options["user_credentials"] = bus.credentials_file
    if bus.nkey_file:
        options["nkeys_seed_str"] = read_secret("bus.nkey_file", bus.nkey_file)
        inbox = inbox or public_nkey(bus.nkey_file, options["nkeys_seed_str"])
    if inbox:  # so that a broker can prevent users from reading replies to others
        options["inbox_prefix"] = f"_INBOX.{escape(inbox)}"
    if requires_tls(bus) or bus.cert_file:
        options["tls"] = tls_context(bus.ca_file, bus.cert_file, bus.key_file, "bus.")
        options["tls_handshake_first"] = bus.tls == "first"
    return options


def requires_tls(bus: Bus) -> bool:
    if bus.tls != "auto" or bus.ca_file or bus.cert_file:
        return True
    return any(server.lower().startswith(("tls://", "wss://")) for server in bus.servers)


def check_urls(servers: Sequence[str]) -> None:
    """Check the servers' URLs, and that websockets' library is installed if needed.

    Raises MissingExtra, or ConfigError without the URL, which may contain a password.
    """
    for number, server in enumerate(servers):
        if not is_server_url(server):
            raise ConfigError(
                f"bus.servers[{number}]: not the URL of a NATS server: {mask(server, 'server')!r} "
                "(expected e.g. nats://10.0.0.1:4222; a password belongs in bus.password_file)"
            )
        if (
            server.lower().startswith(("ws://", "wss://"))
            and importlib.util.find_spec("aiohttp") is None
        ):
            raise MissingExtra("aiohttp", "http")


def is_server_url(server: str) -> bool:
    try:
        parts = urlsplit(server if "://" in server else f"nats://{server}")
        is_valid = bool(parts.hostname) and parts.scheme in SCHEMES and parts.port != 0
    except ValueError:
        return False
    return is_valid and not (parts.path.strip("/") and "@" in parts.path)


def without_secrets(server: str) -> str:
    """Return the scheme, host and port of a server's URL, without secrets."""
    scheme = next((each for each in SCHEMES if server.lower().startswith(f"{each}://")), "")
    address = server[len(f"{scheme}://") :] if scheme else server
    host = re.split("[/?#]", address.rpartition("@")[2])[0]
    return f"{scheme or 'nats'}://{host}"


def public_nkey(path: str, seed: str) -> str:
    """Return the public key of a seed; raises ConfigError naming its file."""
    import nkeys

    try:
        return str(nkeys.from_seed(bytearray(seed.encode())).public_key.decode())
    except (nkeys.NkeysError, ValueError, TypeError):
        raise ConfigError(f"bus.nkey_file: {path}: not an nkey seed") from None


def explain_denial(bus: Bus) -> str:
    """Describe which credentials the server refused, or which it may require."""
    if bus.credentials_file:
        return f"the server refused bus.credentials_file {bus.credentials_file}"
    if bus.nkey_file:
        return f"the server refused the key in bus.nkey_file {bus.nkey_file}"
    if bus.user:
        return f"the server refused bus.user {bus.user!r} with the password in bus.password_file"
    return "set bus.user and bus.password_file, or bus.credentials_file or bus.nkey_file"


def _password(path: str) -> str:
    """Read the password anew for each connection: it may have been changed."""
    try:
        return read_secret("bus.password_file", path)
    except ConfigError as error:
        raise nats.errors.Error(f"nats: {error}") from None


def tls_problem(error: BaseException) -> str:
    """Describe a TLS error; empty for an error of another kind."""
    if isinstance(error.__cause__, ssl.SSLError):  # aiohttp's, which lacks the attributes
        error = error.__cause__
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"TLS: the server's certificate is refused: {error.verify_message.rstrip('.')} "
            "(its authority is bus.ca_file, else one of the system's)"
        )
    if isinstance(error, ssl.SSLError):
        reason = (error.reason or str(error)).replace("_", " ").lower()
        hint = " (bus.cert_file)" if "certificate" in reason else ""
        return f"TLS: the handshake failed: {reason}{hint}"
    return str(error) if isinstance(error, TlsError) else ""
