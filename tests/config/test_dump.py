"""The configuration as plain data: values with units, secrets masked."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.config import Duration, Site, Size, to_struct
from ccpipe.config.dump import mask, plain, with_unit


@given(st.integers(0, 10**9), st.sampled_from([Duration, Size]))
def test_a_measure_reads_back_as_what_it_was(value: int, kind: type[Duration | Size]) -> None:
    """What ``config show`` prints means the same when it is read."""
    assert to_struct(with_unit(kind(value)), kind, "x") == kind(value)


def test_configuration_is_written_as_people_write_it() -> None:
    tree = plain(Site(hostname="n"))
    assert tree["publish"]["interval"] == "10s"
    assert tree["bus"]["stream_size"] == "1GiB"
    assert to_struct(tree, Site, "x") == Site(hostname="n")


def test_user_and_password_in_urls_are_masked() -> None:
    """Whatever characters the password contains; other text stays as it is."""
    assert mask("nats://a:p@q/r@h:1") == "nats://***@h:1"
    assert mask(["tls://tok@h", "nats://h", "a@b"]) == ["tls://***@h", "nats://h", "a@b"]
    assert mask(5) == 5


@pytest.mark.parametrize(
    "server",
    [
        "nats://u:hunter2@h:1",
        "u:hunter2@h:1",
        "nats:/u:hunter2@h",
        "nats:u:hunter2@h",
        "//u:hunter2@h",
        "nats://u:hunter2 with space@h",
        "nats://u:hunter2@x@h",
        "nats://u:hunter2/@h",
        "nats://u:nats://hunter2@h",
        "hunter2@h",
        "nats://u:hunter2\n@h",
        "http://h/write?u=x&password=hunter2",
        "host=h user=u password='hunter2 x' dbname=d",
    ],
)
def test_no_address_shows_its_password(server: str) -> None:
    """With a scheme, without one, and however malformed: what is shown may go into a ticket."""
    site = to_struct({"bus": {"servers": [server]}, "hostname": "n"}, Site, "x")
    for shown in (mask(plain(site)), mask([server], "servers")):
        assert "hunter2" not in str(shown)
        assert "***" in str(shown)


def test_a_value_that_is_called_a_secret_is_one() -> None:
    """Options of plug-ins may be: the names of files are shown, contents are not."""
    table = {"use": "x", "token": "t", "password_file": "/etc/p", "tags": {"mail": "a@b"}}
    assert mask(table) == {**table, "token": "***"}


@given(st.text(), st.sampled_from(["servers", "url", "x", "token"]))
def test_any_text_can_be_masked(value: str, key: str) -> None:
    """Nothing raises, and no user stands in front of a host."""
    assert isinstance(mask(value, key), str)
    assert mask(f"u:hunter2@{value.replace('@', '')}", "servers").startswith("***@")
