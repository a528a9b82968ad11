"""TLS contexts, of connections to any server and of our own servers."""

import ssl

from ccpipe.errors import ConfigError


def check_key(cert_file: str, key_file: str) -> None:
    """Raise ConfigError for a private key without its certificate."""
    if key_file and not cert_file:
        raise ConfigError("key_file: cert_file is missing")


def tls_context(ca_file: str, cert_file: str, key_file: str, where: str = "") -> ssl.SSLContext:
    """Return a context that verifies the server's certificate and presents ours.

    Without `ca_file` the system's certificate authorities are trusted. `where` is the prefix of
    option names in ConfigError.
    """
    try:
        context = ssl.create_default_context(cafile=ca_file or None)
    except OSError as error:  # ssl.SSLError among them
        raise ConfigError(f"{where}ca_file: {ca_file}: {error.strerror or error}") from None
    _load(context, cert_file, key_file, where)
    return context


def server_tls_context(cert_file: str, key_file: str) -> ssl.SSLContext | None:
    if not cert_file:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    _load(context, cert_file, key_file, "")
    return context


def _load(context: ssl.SSLContext, cert_file: str, key_file: str, where: str) -> None:
    try:
        if cert_file:
            context.load_cert_chain(cert_file, key_file or None)
    except OSError as error:
        raise ConfigError(f"{where}cert_file: {cert_file}: {error.strerror or error}") from None
