"""Numbers, durations, volumes and exit codes: each shape that Slurm prints, and nothing else."""

import math
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import DataError
from ccpipe.formats.slurm.values import (
    count,
    decimal,
    duration,
    exit_code,
    megabytes,
    minutes,
    requested_memory,
    volume,
    whole,
)

NOTHING = ["", "N/A", "(null)", "None", "Unknown", "NOT_SET", "INVALID", "Partition_Limit"]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("00:14.493", 14.493),
        ("59:59.999", 3599.999),
        ("00:00:00", 0),
        ("00:03:40", 220),
        ("26:03:40", 26 * 3600 + 220),
        ("1-02:03:04", 93784),
        ("1-02:03:04.567", 93784.567),
        ("365-00:00:00", 365 * 86400),
        ("0:38", 38),
        ("5:00", 300),
        ("1:16", 76),
        ("1:00:00", 3600),
        ("00:00.5", 0.5),
        ("UNLIMITED", math.inf),
        ("infinite", math.inf),
        ("INFINITE", math.inf),
    ],
)
def test_durations_in_all_their_shapes(text: str, seconds: float) -> None:
    assert duration(text) == seconds


def as_sacct_prints(milliseconds: int) -> str:
    seconds, rest = divmod(milliseconds, 1000)
    clock = f"{seconds // 60 % 60:02}:{seconds % 60:02}"
    if seconds >= 86400:
        return f"{seconds // 86400}-{seconds // 3600 % 24:02}:{clock}"
    if seconds >= 3600:
        return f"{seconds // 3600:02}:{clock}"
    return f"{clock}.{rest:03}" if rest else f"00:{clock}"


@given(st.integers(0, 10**12))
def test_cpu_times_come_back_as_sacct_prints_them(milliseconds: int) -> None:
    """Below an hour nothing is lost; above, sacct drops the fraction."""
    seconds = milliseconds / 1000 if milliseconds < 3_600_000 else milliseconds // 1000
    assert duration(as_sacct_prints(milliseconds)) == seconds


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("93585K", 93585 * 1024),
        ("76.50M", int(76.5 * 2**20)),
        ("81M", 81 * 2**20),
        ("2G", 2 * 2**30),
        ("1.50T", 3 * 2**39),
        ("3P", 3 * 2**50),
        ("90693888", 90693888),
        ("32.04M", round(32.04 * 2**20)),
    ],
)
def test_volumes_with_and_without_suffix(text: str, size: int) -> None:
    assert volume(text) == size


def test_a_number_without_suffix_can_count_in_another_unit() -> None:
    """Memory of nodes is printed in MiB without a letter; a letter counts all the same."""
    assert volume("600", unit=2**20) == megabytes("600") == megabytes("600M") == 600 * 2**20
    assert megabytes("1.50G") == 3 * 2**29


def as_slurm_converts(number: int) -> str:
    """Print a volume as ``convert_num_unit`` does: halves are the only fractions."""
    amount, letter = float(number), ""
    for following in "KMGTP":
        if amount < 1024 or amount % 512:
            break
        amount, letter = amount / 1024, following
    return f"{int(amount)}{letter}" if amount == int(amount) else f"{amount:.2f}{letter}"


@given(st.integers(0, 2**52))
def test_volumes_come_back_as_slurm_prints_them(number: int) -> None:
    assert volume(as_slurm_converts(number)) == number


def test_energy_counts_in_thousands() -> None:
    """ConsumedEnergy 17797 J is printed as 17.80K."""
    assert decimal("17.80K") == 17800
    assert decimal("828") == 828


def test_numbers_of_nodes_may_be_short_or_a_range() -> None:
    """Slurm prints 1536 nodes as 1.50K, or at least and at most."""
    assert count("1.50K") == 1536
    assert count("1-1") == 1
    assert count("2-4") == 2
    assert count("36") == 36


@pytest.mark.parametrize(
    ("text", "memory"),
    [
        ("600M", (600 * 2**20, "job")),
        ("0", (0, "job")),
        ("300Mc", (300 * 2**20, "cpu")),
        ("2Gn", (2 * 2**30, "node")),
        ("1.50Gc", (3 * 2**29, "cpu")),
        ("18446744073709551616.00M", None),
        ("", None),
    ],
)
def test_requested_memory_says_of_what_it_is(text: str, memory: tuple[int, str] | None) -> None:
    """Until 20.11 a letter says whether it is of a CPU or a node; since then it is of the job."""
    assert requested_memory(text) == memory


READERS = [duration, volume, decimal, count, whole, minutes, exit_code, megabytes]


@pytest.mark.parametrize("reader", READERS)
def test_nothing_is_none_for_every_reader(reader: Callable[[str], object]) -> None:
    assert [text for text in NOTHING if reader(text) is not None] == []


@pytest.mark.parametrize("reader", READERS)
def test_what_no_reader_takes_is_named(reader: Callable[[str], object]) -> None:
    """Python's own readers take more than Slurm prints; these do not, and they quote the cell."""
    odd = ["x", "-", "1x", "²", "٣", "1:2:3:4", "--1", "1e9", "nan", "0x10", "1_0", " 1", "9" * 99]
    for text in odd:
        with pytest.raises(DataError, match="not a") as raised:
            reader(text)
        assert text[:5] in str(raised.value)


@given(st.text(max_size=30))
def test_any_text_is_a_value_or_a_named_error(text: str) -> None:
    for reader in (*READERS, requested_memory):
        with suppress(DataError):
            found = reader(text)
            assert found is None or isinstance(found, int | float | tuple)
