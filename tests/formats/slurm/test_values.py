"""Cells as Slurm prints them: numbers, durations, volumes, resources and states."""

import math
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import DataError
from ccpipe.formats.slurm.values import (
    JOB_CODES,
    MAX_INDICES,
    Gres,
    cancelled_by,
    count,
    decimal,
    duration,
    exit_code,
    gpu_count,
    gres,
    index_list,
    job_state,
    megabytes,
    minutes,
    node_states,
    requested_memory,
    tres,
    volume,
    whole,
)

PLACEHOLDERS = ["", "N/A", "(null)", "None", "Unknown", "NOT_SET", "INVALID", "Partition_Limit"]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("00:14.493", 14.493),
        ("59:59.999", 3599.999),
        ("26:03:40", 26 * 3600 + 220),
        ("1-02:03:04", 93784),
        ("1-02:03:04.567", 93784.567),
        ("1:16", 76),
        ("1:00:00", 3600),
        ("00:00.5", 0.5),
        ("UNLIMITED", math.inf),
        ("infinite", math.inf),
        ("INFINITE", math.inf),
    ],
)
def test_duration_reads_all_formats(text: str, seconds: float) -> None:
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
def test_duration_round_trips_cpu_times_of_sacct(milliseconds: int) -> None:
    """From one hour on, sacct drops the fraction."""
    seconds = milliseconds / 1000 if milliseconds < 3_600_000 else milliseconds // 1000
    assert duration(as_sacct_prints(milliseconds)) == seconds


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("93585K", 93585 * 1024),
        ("76.50M", int(76.5 * 2**20)),
        ("1.50T", 3 * 2**39),
        ("3P", 3 * 2**50),
        ("90693888", 90693888),
        ("32.04M", round(32.04 * 2**20)),
    ],
)
def test_volume_reads_numbers_with_and_without_suffix(text: str, size: int) -> None:
    assert volume(text) == size


def test_volume_applies_unit_to_numbers_without_suffix() -> None:
    """Memory of nodes is printed in MiB, with or without the suffix."""
    assert volume("600", unit=2**20) == megabytes("600") == megabytes("600M") == 600 * 2**20
    assert megabytes("1.50G") == 3 * 2**29


def as_slurm_converts(number: int) -> str:
    """Print a volume as ``convert_num_unit`` does: halves are the only fractions."""
    amount, suffix = float(number), ""
    for following in "KMGTP":
        if amount < 1024 or amount % 512:
            break
        amount, suffix = amount / 1024, following
    return f"{int(amount)}{suffix}" if amount == int(amount) else f"{amount:.2f}{suffix}"


@given(st.integers(0, 2**52))
def test_volume_round_trips_slurm_format(number: int) -> None:
    assert volume(as_slurm_converts(number)) == number


def test_decimal_reads_thousands() -> None:
    """ConsumedEnergy 17797 J is printed as 17.80K."""
    assert decimal("17.80K") == 17800
    assert decimal("828") == 828


def test_count_reads_short_numbers_and_ranges() -> None:
    """Slurm prints 1536 nodes as 1.50K, or minimum and maximum."""
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
def test_requested_memory_returns_scope(text: str, memory: tuple[int, str] | None) -> None:
    """Until 20.11 a suffix means per CPU or per node; later it is always per job."""
    assert requested_memory(text) == memory


READERS = [duration, volume, decimal, count, whole, minutes, exit_code, megabytes]


@pytest.mark.parametrize("reader", READERS)
def test_readers_return_none_for_placeholders(reader: Callable[[str], object]) -> None:
    assert [text for text in PLACEHOLDERS if reader(text) is not None] == []


@pytest.mark.parametrize("reader", READERS)
def test_readers_reject_and_quote_invalid_cells(reader: Callable[[str], object]) -> None:
    """Python's own parsers accept more than Slurm prints."""
    invalid = [
        "x",
        "-",
        "1x",
        "²",
        "٣",
        "1:2:3:4",
        "--1",
        "1e9",
        "nan",
        "0x10",
        "1_0",
        " 1",
        "9" * 99,
    ]
    for text in invalid:
        with pytest.raises(DataError, match="not a") as raised:
            reader(text)
        assert text[:5] in str(raised.value)


@given(st.text(max_size=30))
def test_readers_raise_only_data_error_for_any_text(text: str) -> None:
    more = (requested_memory, tres, gres, index_list, gpu_count, job_state, node_states)
    for reader in (*READERS, *more, cancelled_by):
        with suppress(DataError):
            reader(text)


NAMES = st.sampled_from(["cpu", "mem", "node", "billing", "gres/gpu", "gres/gpu:a100", "fs/disk"])


def test_tres_reads_usage() -> None:
    text = "cpu=00:00:03,energy=1482,fs/disk=19952972,mem=147658K,gres/gpu:a100=2,vmem=70M"
    assert tres(text) == {
        "cpu": 3,
        "energy": 1482,
        "fs/disk": 19952972,
        "mem": 147658 * 1024,
        "gres/gpu:a100": 2,
        "vmem": 70 * 2**20,
    }


def test_tres_omits_unset_amounts() -> None:
    """2^64-2 and 2^32-2 are sentinels."""
    assert tres("cpu=4,mem=18446744073709551614,energy=4294967294") == {"cpu": 4}


@pytest.mark.parametrize("text", [None, "", "(null)", "N/A"])
def test_resources_are_empty_for_placeholders(text: str | None) -> None:
    assert tres(text) == {}
    assert gres(text) == []
    assert gpu_count(text) == 0


@pytest.mark.parametrize("text", ["cpu", "=4", "cpu=4,,mem=2G", "cpu=four", "cpu=4 mem=2"])
def test_tres_rejects_invalid_lists(text: str) -> None:
    with pytest.raises(DataError, match="expected"):
        tres(text)


def test_gpu_count_counts_each_gpu_once() -> None:
    assert gpu_count("cpu=1,gres/gpu=2,gres/gpu:a100=2") == 2
    assert gpu_count("cpu=1,gres/gpu:a100=2,gres/gpu:h100=1") == 3
    assert gpu_count("cpu=1,mem=2G") == 0


@given(st.dictionaries(NAMES, st.integers(0, 2**40)))
def test_tres_round_trips(amounts: dict[str, int]) -> None:
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
def test_gres_reads_all_formats(text: str, found: list[Gres]) -> None:
    assert gres(text) == found


@pytest.mark.parametrize("text", [":", "gpu:a:b:2", "gpu:2x", "gpu:1(IDX:x)", ",", "gpu:1,"])
def test_gres_rejects_invalid_resources(text: str) -> None:
    with pytest.raises(DataError, match="not a"):
        gres(text)


def test_index_list_reads_ranges() -> None:
    assert index_list("0-3,8") == (0, 1, 2, 3, 8)
    assert index_list("") == index_list("N/A") == index_list(None) == ()
    assert index_list("0-14:2") == (0, 2, 4, 6, 8, 10, 12, 14)


@given(st.lists(st.integers(0, 500), min_size=1, max_size=20))
def test_index_list_round_trips(numbers: list[int]) -> None:
    assert index_list(",".join(map(str, numbers))) == tuple(numbers)


@pytest.mark.parametrize("text", ["3-1", "a", "1-", "-1", "1,,2", "0-9:0", "1 ", "0-9999999999"])
def test_index_list_rejects_invalid_lists(text: str) -> None:
    with pytest.raises(DataError, match="not a range"):
        index_list(text)


def test_index_list_rejects_huge_range() -> None:
    """A few characters can expand to many numbers."""
    with pytest.raises(DataError, match=f"more than {MAX_INDICES}"):
        index_list("0-999999999")


@pytest.mark.parametrize(
    ("text", "state", "by"),
    [
        ("COMPLETED", "COMPLETED", None),
        ("CANCELLED by 1000", "CANCELLED", 1000),
        ("CANCELLED by 0", "CANCELLED", 0),
        ("CANCELLED", "CANCELLED", None),
        ("NODE_FAIL", "NODE_FAIL", None),
        ("OUT_OF_MEMORY", "OUT_OF_MEMORY", None),
        ("CG", "COMPLETING", None),
        ("PD", "PENDING", None),
        ("R", "RUNNING", None),
        ("", None, None),
    ],
)
def test_job_state_reads_names_and_codes(text: str, state: str | None, by: int | None) -> None:
    assert job_state(text) == state
    assert cancelled_by(text) == by


def test_job_codes_map_to_full_states() -> None:
    assert not set(JOB_CODES) & set(JOB_CODES.values())
    assert all(job_state(word) == word for word in JOB_CODES.values())


@pytest.mark.parametrize("text", ["completed", "CANCELLED by", "CANCELLED by x", "A B", "1", "_"])
def test_job_state_rejects_invalid_states(text: str) -> None:
    with pytest.raises(DataError, match="not a job's state"):
        job_state(text)


@pytest.mark.parametrize(
    ("text", "states"),
    [
        ("idle", ("IDLE",)),
        ("down+drain+not_responding", ("DOWN", "DRAIN", "NOT_RESPONDING")),
        ("DOWN+NOT_RESPONDING", ("DOWN", "NOT_RESPONDING")),
        ("mixed+planned", ("MIXED", "PLANNED")),
        ("down*", ("DOWN", "NOT_RESPONDING")),
        ("drained*", ("DRAINED", "NOT_RESPONDING")),
        ("drain*", ("DRAINED", "NOT_RESPONDING")),
        ("drain", ("DRAINED",)),
        ("drng", ("DRAINING",)),
        ("alloc+", ("ALLOCATED", "COMPLETING")),
        ("alloc", ("ALLOCATED",)),
        ("mix-", ("MIXED", "PLANNED")),
        ("idle~", ("IDLE", "POWERED_DOWN")),
        ("idle#", ("IDLE", "POWERING_UP")),
        ("idle!", ("IDLE", "POWER_DOWN")),
        ("idle%", ("IDLE", "POWERING_DOWN")),
        ("maint$", ("MAINTENANCE", "MAINTENANCE")),
        ("idle@", ("IDLE", "REBOOT_REQUESTED")),
        ("boot^", ("BOOT", "REBOOT_ISSUED")),
        ("unk*", ("UNKNOWN", "NOT_RESPONDING")),
        ("unknown+not_responding", ("UNKNOWN", "NOT_RESPONDING")),
        ("n/a", ()),
        ("", ()),
    ],
)
def test_node_states_reads_all_formats(text: str, states: tuple[str, ...]) -> None:
    assert node_states(text) == states


@pytest.mark.parametrize("text", ["down++drain", "idle**", "4", "a b", "+", "*"])
def test_node_states_rejects_invalid_states(text: str) -> None:
    with pytest.raises(DataError, match="not a node's state"):
        node_states(text)
