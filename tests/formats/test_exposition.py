"""Pages of exporters: the text format and OpenMetrics; prometheus_client is the reference."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Summary
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as openmetrics_families,
)
from prometheus_client.parser import text_string_to_metric_families

from ccpipe.errors import DataError
from ccpipe.formats import exposition
from ccpipe.formats.exposition import KnownSeries, Page, PageDecoder
from ccpipe.formats.lineprotocol import decode, encode

TIME = 1_740_027_951 * 10**9
TAGS = {"hostname": "f0101", "type": "node"}

Sample = tuple[str, tuple[tuple[str, str], ...], float, int]


def page(text: str | bytes, **options: Any) -> Page:
    data = text.encode() if isinstance(text, str) else text
    return PageDecoder(KnownSeries(), TAGS).decode(data, TIME, **options)


def encoded(text: str | bytes, **options: Any) -> list[str]:
    return encode(page(text, **options).lines).decode().splitlines()


def reasons(text: str | bytes) -> list[tuple[int, int, str]]:
    return [(bad.line, bad.offset, bad.reason) for bad in page(text).lines.rejected]


def samples(found: Page) -> list[Sample]:
    return [
        (message.name, tuple(sorted(message.tags.items())), float(message.value), message.time or 0)
        for message in found.lines
    ]


def reference(text: str, *, own_times: bool, is_openmetrics: bool = False) -> list[Sample]:
    """Return what prometheus_client reads, with the tags that we add."""
    parse = openmetrics_families if is_openmetrics else text_string_to_metric_families
    return [
        (
            sample.name,
            tuple(sorted({**TAGS, **{k: v for k, v in sample.labels.items() if v}}.items())),
            float(sample.value),
            TIME
            if sample.timestamp is None or not own_times
            else round(float(sample.timestamp) * 1000) * 10**6,
        )
        for family in parse(text)
        for sample in family.samples
        if math.isfinite(sample.value)
    ]


NAMES = st.from_regex(r"[a-zA-Z_:][a-zA-Z0-9_:]{0,12}", fullmatch=True)
LABELS = st.dictionaries(
    st.from_regex(r"[a-zA-Z][a-zA-Z0-9_]{0,8}", fullmatch=True),
    st.text(st.characters(min_codepoint=32, exclude_categories=["Cs", "Cc"]), max_size=12).filter(
        lambda text: not text.endswith("\\")
    ),
    max_size=4,
)
VALUES = st.one_of(
    st.floats(width=64).map(repr),
    st.integers(-(2**63), 2**63).map(str),
    st.sampled_from(["NaN", "+Inf", "-Inf", "1e9", "1.5E-3", ".5", "7."]),
)
BLANKS = st.sampled_from([" ", "  ", "\t", " \t"])
STAMPS = st.one_of(st.none(), st.integers(-(10**12), 2 * 10**12))


def escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def written(name: str, labels: dict[str, str], value: str, blank: str, stamp: int | None) -> str:
    """Return a sample; with many labels it has a comma behind the last one."""
    inner = ",".join(f'{key}="{escaped(text)}"' for key, text in labels.items())
    braces = f"{{{inner}{',' if len(labels) > 2 else ''}}}" if labels else ""
    return f"{name}{braces} {value}" + ("" if stamp is None else f"{blank}{stamp}")


LINES = st.builds(written, NAMES, LABELS, VALUES, BLANKS, STAMPS)


@given(st.lists(LINES, max_size=8), st.booleans())
def test_decoder_reads_what_prometheus_client_reads(texts: list[str], own_times: bool) -> None:
    """The same names, labels, values and timestamps, also from series that are remembered."""
    text = "".join(f"{line}\n" for line in texts)
    expected = reference(text, own_times=own_times)
    decoder = PageDecoder(KnownSeries(), TAGS)
    for _ in range(2):
        found = decoder.decode(text.encode(), TIME, own_times=own_times)
        assert not found.lines.rejected
        assert found.samples == len(texts)
        assert sorted(samples(found)) == sorted(expected)


@pytest.mark.parametrize("is_openmetrics", [False, True])
def test_decoder_reads_histograms_and_summaries_as_written(is_openmetrics: bool) -> None:
    """Of both formats, with exemplars, which are ignored."""
    registry = CollectorRegistry()
    Gauge("temp", "a # comment", ["sensor"], registry=registry).labels('a "b" \\ # {c}').set(4.5)
    Counter("bytes", "read", registry=registry).inc(7, {"trace": "x"} if is_openmetrics else None)
    Histogram("size", "of", registry=registry).observe(0.3, {"id": "y"} if is_openmetrics else None)
    Summary("took", "seconds", registry=registry).observe(2)
    write = generate_openmetrics if is_openmetrics else generate_latest
    text = write(registry).decode()
    found = page(text, is_openmetrics=is_openmetrics)
    assert not found.lines.rejected
    expected = reference(text, own_times=False, is_openmetrics=is_openmetrics)
    assert sorted(samples(found)) == sorted(expected)
    assert "size_bucket" in {name for name, *_ in samples(found)}


@given(st.binary(max_size=200), st.booleans())
def test_decoder_reads_or_rejects_any_bytes(data: bytes, own_times: bool) -> None:
    """What it reads can be sent as line protocol; the rest is rejected line by line."""
    found = page(data, own_times=own_times)
    assert len(decode(encode(found.lines), precision="ns")) == len(found.lines)
    for bad in found.lines.rejected:
        assert data[bad.offset :].startswith(bad.original)
        assert data.split(b"\n")[bad.line - 1] == bad.original


def test_bad_line_costs_that_line() -> None:
    """It is rejected with its number, position and reason."""
    text = b'a 1\nb{x="1" 2\nc one\n\xff 3\nd{x="1",x="2"} 4\ne{x="\xff"} 5\nf 1_0\ng 6 now\nh 7\n'
    assert encoded(text) == [
        f"a,hostname=f0101,type=node value=1.0 {TIME // 10**9}",
        f"h,hostname=f0101,type=node value=7.0 {TIME // 10**9}",
    ]
    sample = "not a sample: expected a name with labels, a blank and a value"
    assert reasons(text) == [
        (2, 4, sample),
        (3, 14, "the value is not a number"),
        (4, 20, sample),
        (5, 24, "a label occurs twice"),
        (6, 41, "not UTF-8"),
        (7, 52, "not a value with an optional timestamp"),
        (8, 58, "not a value with an optional timestamp"),
    ]


def test_labels_precede_tags_of_target() -> None:
    """As in the output of a node's own commands; an empty label is none."""
    [line] = encoded('power{hostname="f0102",type="",chassis="a b"} 5\n')
    assert line == f"power,chassis=a\\ b,hostname=f0102 value=5.0 {TIME // 10**9}"


def test_timestamps_are_kept_by_option() -> None:
    """In milliseconds; in OpenMetrics in seconds; one out of range is rejected."""
    text = "a 1 1740027000500\nb 2\n"
    assert [line.rpartition(" ")[2] for line in encoded(text)] == ["1740027951"] * 2
    kept = [message.time for message in page(text, own_times=True).lines]
    assert kept == [1740027000500 * 10**6, TIME]
    text = "a 1 1740027000.123456789\n# EOF\n"
    [message] = page(text, own_times=True, is_openmetrics=True).lines
    assert message.time == 1740027000123456789
    [bad] = page("a 1 9999999999999999999\n", own_times=True).lines.rejected
    assert bad.reason == "the timestamp is out of range"


def test_truncated_openmetrics_page_is_refused() -> None:
    """Its last line might be half a number."""
    with pytest.raises(DataError, match="# EOF"):
        page("a 1\nb 1", is_openmetrics=True)


def test_page_of_too_many_samples_is_refused() -> None:
    """New series of it are not parsed beyond the maximum."""
    known = KnownSeries()
    decoder = PageDecoder(known, TAGS)
    text = b"".join(b"m%d 1\n" % number for number in range(20))
    for _ in range(2):
        with pytest.raises(DataError, match="more than 10 samples"):
            decoder.decode(text, TIME, max_samples=10)
        assert known.count == 11
    assert decoder.decode(text, TIME, max_samples=20).samples == 20


def test_values_that_are_not_finite_are_omitted_but_counted() -> None:
    """A summary without observations has NaN; large finite values remain."""
    found = page("a NaN\nb +Inf\nc 1e308\nd 1e308\n")
    assert found.samples == 4
    assert [message.name for message in found.lines] == ["c", "d"]


def test_page_of_bad_lines_makes_bounded_number_of_rejections() -> None:
    """The rest of the page is one rejection."""
    bad = page(b"no\n" * (exposition.MAX_REJECTED + 5)).lines.rejected
    assert len(bad) == exposition.MAX_REJECTED + 1
    assert bad[-1].original == b"no\n" * 5
    assert bad[-1].line == exposition.MAX_REJECTED + 1
    assert bad[-1].offset == 3 * exposition.MAX_REJECTED


def test_known_series_are_bounded() -> None:
    """A target with new series in each page starts afresh at the maximum; codes stay right."""
    known = KnownSeries(maximum=10)
    decoder = PageDecoder(known, TAGS)
    for number in range(50):
        [message] = decoder.decode(b'a{job="%d"} %d\n' % (number, number), TIME).lines
        assert (message.tags["job"], message.value) == (str(number), number)
        assert known.count <= 11
    for _ in range(20):
        decoder.decode(b"b\t1\n", TIME)  # however often it is written so
    assert known.count <= 11


@pytest.mark.parametrize(
    "line",
    [
        b'a{x="y"' + b" " * 60_000,
        b'a{x="' + b"\\" * 60_000,
        b"a " + b"1" * 60_000 + b"x",
        b"a" + b" " * 60_000,
        b"a{" + b'x="y",' * 10_000,
        b'a{x="y"} 1' + b" # " * 20_000,
        b"a" * (exposition.MAX_LINE + 1),
    ],
    ids=["blanks", "escapes", "digits", "no-value", "labels", "comments", "too-long"],
)
def test_damaged_line_takes_linear_time(line: bytes) -> None:
    """However it is damaged: backtracking would not end."""
    assert len(page(line).lines.rejected) == 1
