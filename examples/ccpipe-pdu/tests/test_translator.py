"""Outlets of nodes."""

from pathlib import Path

import pytest

from ccpipe import ConfigError, encode
from ccpipe_pdu.readings import decode
from ccpipe_pdu.translator import PduToCc


def test_translator_rejects_reading_of_unknown_outlet(tmp_path: Path) -> None:
    """The readings of known ones become metrics of their nodes."""
    outlets = tmp_path / "outlets.toml"
    outlets.write_text('"rack17/A/12" = "f0101"\n')
    translator = PduToCc(outlets=outlets, cluster="fritz")
    lines = translator.feed(decode(b"rack17;A;12;231.5;1763596800\nrack17;B;1;9;1763596800\n"))
    assert encode(lines) == (
        b"node_outlet_power,cluster=fritz,hostname=f0101,stype=outlet,stype-id=A12,type=node "
        b"value=231.5 1763596800\n"
    )
    assert [bad.original for bad in lines.rejected] == [b"rack17;B;1;9;1763596800"]


def test_translator_names_file_that_it_cannot_read(tmp_path: Path) -> None:
    """With the name of the option."""
    with pytest.raises(ConfigError, match=r"^outlets: .*missing\.toml"):
        PduToCc(outlets=tmp_path / "missing.toml", cluster="fritz")
