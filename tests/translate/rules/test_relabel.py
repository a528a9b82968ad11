"""Other names and other tags of series."""

from collections.abc import Mapping
from typing import Any

import pytest

from ccpipe.errors import ConfigError
from ccpipe.formats.lineprotocol import decode, encode, to_lines
from ccpipe.message import metric
from ccpipe.translate.rules.relabel import Rename, Tag


def renamed(name: str, names: dict[str, str], **tags: str) -> str:
    (message,) = Rename(names=names, tags={"type": "node"}).feed(
        to_lines([metric(name, 1.0, time=1, tags={"type": "node", **tags})])
    )
    return message.name


@pytest.mark.parametrize(
    ("name", "names", "expected"),
    [
        ("cpu_load", {"cpu_load": "load_one"}, "load_one"),
        ("cpu_load_core", {"cpu_load": "load_one"}, "cpu_load_core"),
        ("nv_util", {"nv_*": "gpu_*"}, "gpu_util"),
        ("io_reads_bw", {"*_bw": "*_rate"}, "io_reads_rate"),
        ("nv_util", {"nv_*": "gpu"}, "gpu"),
        ("a.b", {"a?b": "x"}, "a.b"),
        ("axb", {"a.b": "x"}, "axb"),
        ("nv_util", {"nv_util": "first", "nv_*": "second"}, "first"),
        ("nv_mem", {"nv_util": "first", "nv_*": "second"}, "second"),
        ("a", {"a": "b", "b": "c"}, "b"),
    ],
)
def test_rename_uses_first_matching_pair(name: str, names: dict[str, str], expected: str) -> None:
    """One ``*`` matches any characters; nothing else is special; no name is changed twice."""
    assert renamed(name, names) == expected


def test_rename_keeps_name_if_new_one_is_invalid() -> None:
    """A metric keeps its name where the new one would be empty or a comment."""
    assert renamed("nv_", {"nv_*": "*"}) == "nv_"
    assert renamed("nv_#x", {"nv_*": "*"}) == "nv_#x"


def test_rename_applies_to_series_with_matching_tags() -> None:
    """The same metric of other parts of the node keeps its name."""
    assert renamed("clock", {"clock": "freq"}, type="hwthread") == "clock"


@pytest.mark.parametrize(
    ("device", "names", "expected"),
    [
        ("eth0", {"net": "net_{stype-id}"}, "net_eth0"),
        ("mlx5_0/1", {"n*": "n*_{stype-id}_{stype}"}, "net_mlx5_0_1_network"),
        ("/scratch data,ü", {"net": "{stype-id}"}, "_scratch_data__"),
        ("eth0", {"net": "net_{device}", "*": "other"}, "other"),
        ("eth0", {"net": "net_{device}"}, "net"),
        ("eth0", {"net": "net_{}{"}, "net_{}{"),
        ("*", {"n*": "*_{stype-id}"}, "et__"),
    ],
)
def test_rename_inserts_tag_values(device: str, names: dict[str, str], expected: str) -> None:
    """Every other character becomes ``_``; a pair does not match a series without the tag."""
    assert renamed("net", names, stype="network", **{"stype-id": device}) == expected


def test_rename_inserts_no_tags_into_matched_text() -> None:
    assert renamed("nv_{x}", {"nv_*": "gpu_*"}) == "gpu_{x}"


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        ({}, "names: expected at least one"),
        ({"a*b*": "x"}, r"names: 'a\*b\*' has more than one"),
        ({"a": "x*"}, r"names: 'x\*' has more"),
        ({"a": ""}, "names: '' cannot be a name"),
        ({"a": "#x"}, "names: '#x' cannot be a name"),
        ({"a\n": "x"}, r"names: 'a\\n' cannot be a name"),
    ],
)
def test_rename_rejects_invalid_names(names: dict[str, str], reason: str) -> None:
    """Wrong configuration is fatal before anything starts."""
    with pytest.raises(ConfigError, match=reason):
        Rename(names=names)


def tagged(tags: Mapping[str, str], /, **options: Any) -> dict[str, str]:
    (message,) = Tag(**options).feed(to_lines([metric("m", 1.0, time=1, tags=tags)]))
    assert list(message.tags) == sorted(message.tags)
    return dict(message.tags)


def test_tag_adds_tags_sorted() -> None:
    lines = decode(b"m,hostname=a,type=node value=1i 1740027951\n")
    passed = Tag(add={"partition": "main", "zone": "b c"}).feed(lines)
    assert encode(passed) == (
        b"m,hostname=a,partition=main,type=node,zone=b\\ c value=1i 1740027951\n"
    )


def test_tag_replaces_value_of_existing_tag() -> None:
    assert tagged({"cluster": "x", "type": "node"}, add={"cluster": "fritz"}) == {
        "cluster": "fritz",
        "type": "node",
    }


def test_tag_adds_name_of_metric() -> None:
    """So that a store can have all metrics in one table."""
    lines = Tag(add={"metric": "cc_{name}"}).feed(decode(b"m,type=node value=1 1\n"))
    assert encode(lines) == b"m,metric=cc_m,type=node value=1.0 1\n"


def test_tag_removes_tags_before_adding() -> None:
    """A missing tag is not an error."""
    tags = {"device": "sda", "unit": "kB"}
    assert tagged(tags, remove=["unit", "other"]) == {"device": "sda"}
    assert tagged(tags, remove=["unit"], add={"unit": "KiB"}) == {"device": "sda", "unit": "KiB"}


def test_tag_renames_tags() -> None:
    """The value stays; a tag of the new name is replaced, and a missing one is not an error."""
    assert tagged({"host": "n1"}, rename={"host": "hostname"}) == {"hostname": "n1"}
    assert tagged({"host": "n1", "hostname": "x"}, rename={"host": "hostname"}) == {
        "hostname": "n1"
    }
    assert tagged({"a": "1"}, rename={"host": "hostname"}) == {"a": "1"}
    assert tagged({"a": "1", "b": "2"}, rename={"a": "b", "b": "a"}) == {"a": "2", "b": "1"}


def test_tag_applies_to_matching_series() -> None:
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
def test_tag_rejects_invalid_tags(options: dict[str, Any], reason: str) -> None:
    """Wrong configuration is fatal before anything starts."""
    with pytest.raises(ConfigError, match=reason):
        Tag(**options)
