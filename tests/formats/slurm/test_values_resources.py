"""TRES and GRES texts, and lists of indices."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import DataError
from ccpipe.formats.slurm.values import (
    MAX_INDICES,
    Gres,
    gpu_count,
    gres,
    index_list,
    tres,
)

NAMES = st.sampled_from(["cpu", "mem", "node", "billing", "gres/gpu", "gres/gpu:a100", "fs/disk"])


def test_used_resources() -> None:
    text = "cpu=00:00:03,energy=1482,fs/disk=19952972,mem=147658K,gres/gpu:a100=2,vmem=70M"
    assert tres(text) == {
        "cpu": 3,
        "energy": 1482,
        "fs/disk": 19952972,
        "mem": 147658 * 1024,
        "gres/gpu:a100": 2,
        "vmem": 70 * 2**20,
    }


def test_amounts_that_were_never_set_are_left_out() -> None:
    """2^64-2 and its like are marks, not amounts."""
    assert tres("cpu=4,mem=18446744073709551614,energy=4294967294") == {"cpu": 4}


@pytest.mark.parametrize("text", [None, "", "(null)", "N/A"])
def test_no_resources(text: str | None) -> None:
    assert tres(text) == {}
    assert gres(text) == []
    assert gpu_count(text) == 0


@pytest.mark.parametrize("text", ["cpu", "=4", "cpu=4,,mem=2G", "cpu=four", "cpu=4 mem=2"])
def test_what_is_no_list_of_resources(text: str) -> None:
    with pytest.raises(DataError, match="expected"):
        tres(text)


def test_gpus_are_counted_once() -> None:
    assert gpu_count("cpu=1,gres/gpu=2,gres/gpu:a100=2") == 2
    assert gpu_count("cpu=1,gres/gpu:a100=2,gres/gpu:h100=1") == 3
    assert gpu_count("cpu=1,mem=2G") == 0


@given(st.dictionaries(NAMES, st.integers(0, 2**40)))
def test_resources_come_back(amounts: dict[str, int]) -> None:
    marks = {2**32 - 2, 2**32 - 1}
    text = ",".join(f"{name}={amount}" for name, amount in amounts.items())
    assert tres(text) == {name: value for name, value in amounts.items() if value not in marks}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("gpu:a100:2(IDX:0-1)", [Gres("gpu", "a100", 2, (0, 1))]),
        ("gpu:a100:0(IDX:N/A)", [Gres("gpu", "a100", 0, ())]),
        ("gres:gpu:a100:2", [Gres("gpu", "a100", 2, ())]),
        ("gres/gpu:a100:1", [Gres("gpu", "a100", 1, ())]),
        ("gres/gpu:a100=1", [Gres("gpu", "a100", 1, ())]),
        ("gpu", [Gres("gpu", None, 1, ())]),
        ("gpu:4(S:0-1)", [Gres("gpu", None, 4, ())]),
        (
            "gpu:a100:2(IDX:0,2),shard:h100:8(IDX:1-2)",
            [Gres("gpu", "a100", 2, (0, 2)), Gres("shard", "h100", 8, (1, 2))],
        ),
        ("craynetwork:1K", [Gres("craynetwork", None, 1024, ())]),
    ],
)
def test_generic_resources(text: str, found: list[Gres]) -> None:
    assert gres(text) == found


@pytest.mark.parametrize("text", [":", "gpu:a:b:2", "gpu:2x", "gpu:1(IDX:x)", ",", "gpu:1,"])
def test_what_is_no_generic_resource(text: str) -> None:
    with pytest.raises(DataError, match="not a"):
        gres(text)


def test_lists_of_indices() -> None:
    assert index_list("0-3,8") == (0, 1, 2, 3, 8)
    assert index_list("") == index_list("N/A") == index_list(None) == ()
    assert index_list("0-14:2") == (0, 2, 4, 6, 8, 10, 12, 14)


@given(st.lists(st.integers(0, 500), min_size=1, max_size=20))
def test_indices_come_back(numbers: list[int]) -> None:
    assert index_list(",".join(map(str, numbers))) == tuple(numbers)


@pytest.mark.parametrize("text", ["3-1", "a", "1-", "-1", "1,,2", "0-9:0", "1 ", "0-9999999999"])
def test_what_is_no_list_of_indices(text: str) -> None:
    with pytest.raises(DataError, match="not a range"):
        index_list(text)


def test_a_list_that_would_fill_the_memory_is_refused() -> None:
    """A few characters can stand for many numbers."""
    with pytest.raises(DataError, match=f"more than {MAX_INDICES}"):
        index_list("0-999999999")


@given(st.text(max_size=40))
def test_any_text_is_resources_or_a_named_error(text: str) -> None:
    for reader in (tres, gres, index_list, gpu_count):
        with suppress(DataError):
            reader(text)
