"""Certificates of a broker's connection."""

import ssl

import pytest

from ccpipe.errors import ConfigError
from ccpipe.tls import tls_context


def test_certificate_of_server_is_verified() -> None:
    """Without files the system's authorities are trusted, and names must match."""
    context = tls_context("", "", "", "bus.")
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)


@pytest.mark.parametrize(
    ("files", "option"), [(("/none", "", ""), "ca_file"), (("", "/none", "/none"), "cert_file")]
)
def test_unreadable_files_are_named(files: tuple[str, str, str], option: str) -> None:
    with pytest.raises(ConfigError, match=rf"^bus\.{option}: /none: No such file"):
        tls_context(*files, "bus.")
