"""``ccpipe.translate.rules.rename``: other names, the same series otherwise."""

import pytest

from ccpipe.errors import ConfigError
from ccpipe.message import metric
from ccpipe.translate.rules.rename import Rename


def renamed(name: str, names: dict[str, str], **tags: str) -> str:
    """Return what a metric of a name is called afterwards."""
    (message,) = Rename(names=names, tags={"type": "node"}).feed(
        [metric(name, 1.0, time=1, tags={"type": "node", **tags})]
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
def test_names_are_taken_from_the_first_pair_that_fits(
    name: str, names: dict[str, str], expected: str
) -> None:
    """One ``*`` stands for any characters; nothing else is special; no name is changed twice."""
    assert renamed(name, names) == expected


def test_a_name_that_cannot_be_written_is_not_given() -> None:
    """A metric keeps its name where nothing, or the mark of a comment, would be left of it."""
    assert renamed("nv_", {"nv_*": "*"}) == "nv_"
    assert renamed("nv_#x", {"nv_*": "*"}) == "nv_#x"


def test_only_series_with_fitting_tags_are_renamed() -> None:
    """The same metric of other parts of the node keeps its name."""
    assert renamed("clock", {"clock": "freq"}, type="hwthread") == "clock"


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        ({}, "names: expected at least one"),
        ({"a*b*": "x"}, r"names: 'a\*b\*' holds more than one"),
        ({"a": "x*"}, r"names: 'x\*' holds more"),
        ({"a": ""}, "names: '' cannot be a name"),
        ({"a": "#x"}, "names: '#x' cannot be a name"),
        ({"a\n": "x"}, r"names: 'a\\n' cannot be a name"),
    ],
)
def test_names_that_cannot_be_are_refused(names: dict[str, str], reason: str) -> None:
    """Wrong configuration is fatal before anything starts."""
    with pytest.raises(ConfigError, match=reason):
        Rename(names=names)
