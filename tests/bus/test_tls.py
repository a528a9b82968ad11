"""Certificates of a broker's connection."""

import ssl

import pytest

from ccpipe.bus.tls import tls_context
from ccpipe.errors import ConfigError


def test_the_servers_certificate_is_checked() -> None:
    """Without files the system's authorities are trusted, and names must match."""
    context = tls_context("", "", "", "bus.")
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)


@pytest.mark.parametrize("files", [("/none", "", ""), ("", "/none", "/none")])
def test_files_that_cannot_be_read_are_named(files: tuple[str, str, str]) -> None:
    """With the prefix of their options."""
    with pytest.raises(ConfigError, match=r"^bus\.ca_file, cert_file or key_file: .*No such file"):
        tls_context(*files, "bus.")
