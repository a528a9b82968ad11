"""``ccpipe.translate.rules.rate``: counters become rates per second."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.config import Interval
from ccpipe.errors import ConfigError
from ccpipe.formats.lineprotocol import decode, encode, to_lines
from ccpipe.message import Message, Uint, event
from ccpipe.translate.rules import rate
from ccpipe.translate.rules.rate import SECOND, Rate

TAGS = {"hostname": "n1", "type": "node"}


def fed(rule: Rate, *samples: tuple[float, int], name: str = "c") -> list[float]:
    """Return the rates of samples: values and seconds."""
    messages = [Message(name, TAGS, value, second * SECOND) for value, second in samples]
    return [float(message.value) for message in rule.feed(to_lines(messages))]


def test_rate_replaces_counter_in_its_place() -> None:
    """From the second sample on; others are unchanged, in order."""
    rule = Rate(names=["c*"])
    assert encode(rule.feed(decode(b"a,hostname=n1 value=1 10\nc,hostname=n1 value=5i 10\n"))) == (
        b"a,hostname=n1 value=1.0 10\n"
    )
    text = b"c,hostname=n1 value=25i 20\na,hostname=n1 value=2 20\nc,hostname=n2 value=7 20\n"
    assert encode(rule.feed(decode(text))) == (
        b"c,hostname=n1 value=2.0 20\na,hostname=n1 value=2.0 20\n"
    )


def test_rate_has_new_name_and_unit_beside_kept_counter() -> None:
    """The unit is that of the counter per second, or the option's."""
    rule = Rate(names=["c"], name="*_bw", keep=True)
    rule.feed(decode(b"c,unit=B value=1 10\n"))
    text = b"c,unit=B value=21 20\nd value=1 20\n"
    assert encode(rule.feed(decode(text))) == (
        b"c,unit=B value=21.0 20\nd value=1.0 20\nc_bw,unit=B/s value=2.0 20\n"
    )
    rule = Rate(names=["c"], unit="ratio")
    rule.feed(decode(b"c value=1 10\n"))
    assert encode(rule.feed(decode(b"c value=2 20\n"))) == b"c,unit=ratio value=0.1 20\n"


def test_reset_gap_and_repeated_sample_give_no_rate() -> None:
    """A counter that decreases was reset; a sample delivered again does not count twice."""
    rule = Rate(names=["c"], max_gap=Interval(60))
    assert fed(rule, (5, 10), (15, 20), (15, 20), (5, 10), (25, 30)) == [1.0, 1.0]
    assert fed(rule, (3, 40), (13, 50)) == [1.0]
    assert fed(rule, (100, 111), (110, 121)) == [1.0]
    assert fed(rule, (Uint(2**64 - 10), 131), (Uint(2**64 - 1), 141)) != []


def test_counter_without_time_is_dropped_and_events_pass() -> None:
    """There is no rate without a time."""
    rule = Rate(names=["c"])
    messages = [Message("c", TAGS, 5.0, None), event("c", "start_job", "{}", time=1, tags=TAGS)]
    assert list(rule.feed(to_lines(messages))) == messages[1:]


def test_known_counters_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The least recently updated are dropped."""
    monkeypatch.setattr(rate, "MAX_COUNTERS", 3)
    rule = Rate(names=["*"])
    for number in range(20):
        fed(rule, (1, number), name=f"c{number}")
    assert len(rule._last) == 3
    assert fed(rule, (5, 21), name="c17") == [1.0]


@given(st.lists(st.integers(0, 2**62), min_size=2, max_size=9), st.integers(1, 600))
def test_rates_add_up_to_increase(values: list[int], seconds: int) -> None:
    """Of a counter that never decreases, whatever the interval."""
    values.sort()
    rule = Rate(names=["c"])
    found = fed(rule, *[(value, seconds * number) for number, value in enumerate(values)])
    assert len(found) == len(values) - 1
    assert sum(found) * seconds == pytest.approx(values[-1] - values[0], rel=1e-9)


def test_invalid_options_are_refused() -> None:
    """A kept counter and its rate cannot have the same name."""
    with pytest.raises(ConfigError, match="name: a rate needs another name"):
        Rate(names=["c"], keep=True)
    with pytest.raises(ConfigError, match="names: expected at least one"):
        Rate(names=[])
    with pytest.raises(ConfigError, match="cannot be a name"):
        Rate(names=["c"], name="#*")
