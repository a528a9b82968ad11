"""A batch of envelopes: what it knows of the payloads it came from, and its dead letters."""

from msgspec.structs import replace

from ccpipe.formats.sonar import Envelopes, decode
from tests.formats.sonar import examples
from tests.formats.sonar.examples import one

PAYLOAD = (examples.CLUSTER + "\n" + '{"data":7}\n' + examples.ERROR).encode()


def batch() -> Envelopes:
    return decode(PAYLOAD)


def test_it_is_a_list_that_knows_its_size_and_what_was_rejected() -> None:
    """Each rejected item has its reason, its bytes and its place in the payload."""
    made = batch()
    assert (made.name, len(made), made.size) == ("envelopes", 2, len(PAYLOAD))
    (bad,) = made.rejected
    assert bad.reason == "$.data: expected `object | null`, got `int`: 7"
    assert (bad.original, bad.line) == (b'{"data":7}', 2)
    assert bad.offset == PAYLOAD.index(b'{"data":7}')


def test_all_broken_rules_are_one_reason() -> None:
    """Joined by semicolons."""
    broken = examples.CLUSTER.replace("fox.educloud.no", "").replace('"normal"', '""')
    (bad,) = decode(broken.encode(), strict=True).rejected
    assert bad.reason == "; ".join(map(str, bad.problems))
    assert len(bad.problems) == 2


def test_an_original_is_json_or_the_record_as_python_shows_it() -> None:
    """A dead letter holds what can be decoded again, else at least all that was there."""
    made = batch()
    assert decode(made.original(1)) == [made[1]]
    assert not made.original(1).endswith(b"\n")
    broken = replace(one(examples.SYSINFO), data=None)
    assert Envelopes([broken]).original(0).startswith(b"SysinfoEnvelope(meta=")
    odd = replace(one(examples.ERROR), unknown={("x",): "\ud800"})
    assert b"\\ud800" in Envelopes([odd]).original(0)
