"""What passes between the parts."""

import dataclasses
import inspect

import pytest

from ccpipe.formats.lineprotocol import Lines
from ccpipe.pipeline import Batch, DeadLetter, interfaces


def test_batch_cannot_be_changed() -> None:
    """Whoever has it sees what the source yielded."""
    batch = Batch(Lines())
    with pytest.raises(dataclasses.FrozenInstanceError):
        batch.records = Lines()  # type: ignore[misc]


def test_interfaces_have_few_optional_members() -> None:
    """A reader takes them in at one sitting: what a part must have, and little that it may."""
    classes = [each for _, each in inspect.getmembers(interfaces, inspect.isclass)]
    own = [each for each in classes if each.__module__ == interfaces.__name__]
    parts = [each for each in own if each.__name__ not in ("Batch", "Scope")]
    optional = {
        name
        for part in parts
        for name, member in vars(part).items()
        if not name.startswith("_abc")
        and name not in ("__init__", "__new__")
        and (not name.startswith("__") or name in ("__aenter__", "__aexit__"))
        and not getattr(member, "__isabstractmethod__", False)
        and not name.startswith("_")
    } | {"__aenter__", "__aexit__"}
    assert len(optional) <= 8, sorted(optional)


def test_a_dead_letter_in_a_log_says_where_why_and_what() -> None:
    """One line, bounded however long the original is; no place where a store refused a record."""
    unreadable = DeadLetter(b"x" * 1000, "no field", "fox.metrics", line=3, offset=70)
    text = str(unreadable)
    assert text.startswith("dead letter from fox.metrics line 3, offset 70: no field: b'xxx")
    assert len(text) < 200
    assert str(DeadLetter(b"a\nb", "too old")) == r"dead letter from ?: too old: b'a\nb'"
