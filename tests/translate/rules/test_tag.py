"""``ccpipe.translate.rules.tag``: tags are added and removed, all else is kept."""

from collections.abc import Mapping
from typing import Any

import pytest

from ccpipe.errors import ConfigError
from ccpipe.formats.lineprotocol import decode, encode, to_lines
from ccpipe.message import metric
from ccpipe.translate.rules.tag import Tag


def tagged(tags: Mapping[str, str], /, **options: Any) -> dict[str, str]:
    (message,) = Tag(**options).feed(to_lines([metric("m", 1.0, time=1, tags=tags)]))
    assert list(message.tags) == sorted(message.tags)
    return dict(message.tags)


def test_tags_are_added_in_their_order() -> None:
    """Tags stay sorted."""
    lines = decode(b"m,hostname=a,type=node value=1i 1740027951\n")
    passed = Tag(add={"partition": "main", "zone": "b c"}).feed(lines)
    assert encode(passed) == (
        b"m,hostname=a,partition=main,type=node,zone=b\\ c value=1i 1740027951\n"
    )


def test_what_is_added_replaces_what_the_tag_said() -> None:
    """A tag that is added replaces one of the same name."""
    assert tagged({"cluster": "x", "type": "node"}, add={"cluster": "fritz"}) == {
        "cluster": "fritz",
        "type": "node",
    }


def test_tags_are_taken_away_before_others_are_added() -> None:
    """A missing tag is no error."""
    tags = {"device": "sda", "unit": "kB"}
    assert tagged(tags, remove=["unit", "other"]) == {"device": "sda"}
    assert tagged(tags, remove=["unit"], add={"unit": "KiB"}) == {"device": "sda", "unit": "KiB"}


def test_tags_are_renamed() -> None:
    """The value stays; a tag of the new name is replaced, and a missing one is no error."""
    assert tagged({"host": "n1"}, rename={"host": "hostname"}) == {"hostname": "n1"}
    assert tagged({"host": "n1", "hostname": "x"}, rename={"host": "hostname"}) == {
        "hostname": "n1"
    }
    assert tagged({"a": "1"}, rename={"host": "hostname"}) == {"a": "1"}
    assert tagged({"a": "1", "b": "2"}, rename={"a": "b", "b": "a"}) == {"a": "2", "b": "1"}


def test_only_series_that_fit_are_changed() -> None:
    """Names and tags both must match."""
    assert tagged({"type": "node"}, add={"a": "b"}, names=["x"]) == {"type": "node"}
    assert tagged({"type": "node"}, add={"a": "b"}, tags={"type": "core"}) == {"type": "node"}
    assert tagged({"type": "node"}, add={"a": "b"}, names=["m"], tags={"type": "n*"}) == {
        "a": "b",
        "type": "node",
    }


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "nothing to add, rename or remove"),
        ({"rename": {"host": ""}}, "rename: '' cannot be a tag"),
        ({"add": {"a": ""}}, "add: 'a' = '' cannot be a tag"),
        ({"add": {"": "a"}}, "add: '' = 'a' cannot be a tag"),
        ({"add": {"a": "b\n"}}, r"add: 'a' = 'b\\n' cannot be a tag"),
    ],
)
def test_tags_that_cannot_be_are_refused(options: dict[str, Any], reason: str) -> None:
    """Wrong configuration is fatal before anything starts."""
    with pytest.raises(ConfigError, match=reason):
        Tag(**options)
