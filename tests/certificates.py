"""A certificate authority of a test's own, by the real openssl."""

import subprocess
from pathlib import Path
from typing import NamedTuple

from tests.conftest import program


class Certificates(NamedTuple):
    """Files in PEM; the certificate is of 127.0.0.1 and localhost, for servers and clients."""

    ca: Path
    cert: Path
    key: Path


def certificates(directory: Path) -> Certificates:
    made = Certificates(directory / "ca.pem", directory / "cert.pem", directory / "key.pem")
    names = "subjectAltName=IP:127.0.0.1,DNS:localhost"
    ec = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1")
    authority = ("-keyout", directory / "ca.key", "-out", made.ca, "-subj", "/CN=an authority")
    _openssl("req", "-x509", *ec, *authority)
    signed = (
        "-CA",
        made.ca,
        "-CAkey",
        directory / "ca.key",
        "-addext",
        names,
        "-subj",
        "/CN=a host",
    )
    _openssl("req", "-x509", *ec, *signed, "-keyout", made.key, "-out", made.cert)
    return made


def _openssl(*arguments: object) -> None:
    command = [str(program("openssl", "openssl")), *map(str, arguments)]
    subprocess.run(command, check=True, capture_output=True)
