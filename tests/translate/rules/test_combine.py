"""``ccpipe.translate.rules.combine``: sums and differences of metrics."""

import pytest

from ccpipe.errors import ConfigError
from ccpipe.formats.lineprotocol import decode, encode
from ccpipe.translate.rules.combine import Combine


def test_result_follows_metrics_of_same_tags_and_time() -> None:
    """Integers stay exact; a metric of another node or time does not count."""
    text = (
        b"total,hostname=a value=100i 10\nshared,hostname=a value=1i 10\n"
        b"free,hostname=a value=30i 10\ncached,hostname=b value=5i 10\n"
        b"cached,hostname=a value=20i 11\n"
    )
    rule = Combine(name="used", add=["total", "shared"], subtract=["free", "cached"])
    assert encode(rule.feed(decode(text))) == text
    text += b"cached,hostname=a value=20i 10\n"
    assert encode(rule.feed(decode(text))) == text + b"used,hostname=a value=51i 10\n"


def test_tags_limit_combination() -> None:
    """As in the other rules."""
    text = b"a,type=node value=2.5 10\nb,type=node value=1 10\na,type=socket value=2 10\n"
    text += b"b,type=socket value=1 10\n"
    rule = Combine(name="c", add=["a"], subtract=["b"], tags={"type": "node"})
    assert encode(rule.feed(decode(text))).splitlines()[4:] == [b"c,type=node value=1.5 10"]


def test_result_that_overflows_is_omitted() -> None:
    """It cannot be written."""
    text = b"a value=1.7e308 10\nb value=1.7e308 10\n"
    assert len(Combine(name="c", add=["a", "b"]).feed(decode(text))) == 2


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"name": "#", "add": ["a"]}, "cannot be a name"),
        ({"name": "c", "add": []}, "add: expected at least one"),
        ({"name": "c", "add": ["a"], "subtract": ["a"]}, "once"),
        ({"name": "a", "add": ["a"]}, "once"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, object], match: str) -> None:
    """Each names its key."""
    with pytest.raises(ConfigError, match=match):
        Combine(**options)  # type: ignore[arg-type]
