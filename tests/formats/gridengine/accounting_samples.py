"""Sample files of Grid Engine's accounting, and lines made for a test."""

from hypothesis import strategies as st

from ccpipe.formats.gridengine import Accounting, ParsedChunk, read
from tests.paths import TEST_DATA

DATA = TEST_DATA / "gridengine"
CLASSIC = (
    "all.q:node01:physics:anna:burn:77:sge:0:1795170750:1795170751:1795170761:0:0:10:1.5:0.25:"
    "4696.000000:0:0:0:0:539:1:0:16.000000:8:0:0:0:4:2:astro:physdept:smp:4:0:1.75:0.5:0.25:"
)
TAIL = "0.125:1.node02:5394432.000000"
SAMPLES = ["accounting", "derived.jsonl", "reporting.head"]


def one(line: str | bytes) -> Accounting:
    reading = read((line if isinstance(line, bytes) else line.encode()) + b"\n")
    assert reading.rejected == []
    (record,) = reading.records
    return record


def reason(line: str) -> str:
    reading = read(line.encode("utf-8", "surrogateescape") + b"\n")
    assert reading.records == []
    (rejected,) = reading.rejected
    return rejected.reason


def data(name: str) -> ParsedChunk:
    return read((DATA / name).read_bytes(), file=name)


def data_line(name: str) -> bytes:
    return (DATA / name).read_bytes().split(b"\n")[0]


def mutated(name: str) -> st.SearchStrategy[bytes]:
    lines = (DATA / name).read_bytes().splitlines(keepends=True)
    junk = st.sampled_from(
        [b":", b"", b"\n", b"0", b"x", b"-1", b"NONE", b'"', b"{", b"\xff", b" "]
    )

    def mutate(drawn: tuple[list[bytes], list[tuple[int, int, bytes]]]) -> bytes:
        payload = b"".join(drawn[0])
        for at, length, replacement in drawn[1]:
            at %= len(payload) + 1  # noqa: PLW2901
            payload = payload[:at] + replacement + payload[at + length :]
        return payload

    edits = st.tuples(st.integers(0, 10**5), st.integers(0, 3), junk)
    picked = st.lists(st.sampled_from(lines), min_size=1, max_size=4)
    return st.tuples(picked, st.lists(edits, max_size=3)).map(mutate)
