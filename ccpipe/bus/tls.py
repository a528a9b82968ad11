"""TLS context for the connection to any broker."""

import ssl

from ccpipe.errors import ConfigError


def tls_context(ca_file: str, cert_file: str, key_file: str, where: str) -> ssl.SSLContext:
    """Return a context that verifies the server's certificate and presents ours.

    Without `ca_file` the system's certificate authorities are trusted. `where` is the prefix of
    option names in errors.

    Raises
    ------
    ConfigError
        if a file cannot be read.

    """
    try:
        context = ssl.create_default_context(cafile=ca_file or None)
        if cert_file:
            context.load_cert_chain(cert_file, key_file or None)
    except OSError as error:
        raise ConfigError(f"{where}ca_file, cert_file or key_file: {error}") from None
    return context
