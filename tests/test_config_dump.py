"""The configuration as plain data: values with units, secrets masked."""

from hypothesis import given
from hypothesis import strategies as st

from ccpipe.config import Duration, Site, Size, convert
from ccpipe.config_dump import mask, measure, plain


@given(st.integers(0, 10**9), st.sampled_from([Duration, Size]))
def test_a_measure_reads_back_as_what_it_was(value: int, kind: type[Duration | Size]) -> None:
    """What ``config show`` prints means the same when it is read."""
    assert convert(measure(kind(value)), kind, "x") == kind(value)


def test_configuration_is_written_as_people_write_it() -> None:
    """Durations and sizes have units, nothing is a Python object."""
    tree = plain(Site(hostname="n"))
    assert tree["publish"]["interval"] == "10s"
    assert tree["bus"]["stream_size"] == "1GiB"
    assert convert(tree, Site, "x") == Site(hostname="n")


def test_user_and_password_in_urls_are_masked() -> None:
    """Whatever characters the password contains; other text stays as it is."""
    assert mask("nats://a:p@q/r@h:1") == "nats://***@h:1"
    assert mask(["tls://tok@h", "nats://h", "a@b"]) == ["tls://***@h", "nats://h", "a@b"]
    assert mask(5) == 5
