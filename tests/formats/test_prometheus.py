"""Remote write: requests, read by another decoder and by a real store."""

import struct
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import EncodeError
from ccpipe.formats import prometheus
from ccpipe.formats.lineprotocol import SeriesTable, decode, to_lines
from ccpipe.formats.lineprotocol.decoder import decode_in_python
from ccpipe.formats.prometheus import HEADERS, RemoteWrite
from ccpipe.message import Message
from tests.conftest import needs_kernel
from tests.servers.victoriametrics import VictoriaMetrics

Written = list[tuple[dict[str, str], list[tuple[int, float]]]]


def _fields(body: bytes) -> Iterator[tuple[int, Any]]:
    position = 0

    def varint() -> int:
        nonlocal position
        value = shift = 0
        while True:
            byte = body[position]
            position += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while position < len(body):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
        elif key & 7 == 1:
            yield key >> 3, struct.unpack_from("<d", body, position)[0]
            position += 8
        else:
            assert key & 7 == 2
            size = varint()
            assert position + size <= len(body)
            yield key >> 3, body[position : position + size]
            position += size


def read(request: bytes) -> Written:
    written: Written = []
    for one, series in _fields(request):
        assert one == 1
        labels, samples = [], []
        for part, body in _fields(series):
            first, second = dict(_fields(body)).values()
            if part == 1:
                labels.append((first.decode(), second.decode()))
            else:
                samples.append((second - 2**64 if second >= 2**63 else second, first))
        assert labels == sorted(labels)
        written.append((dict(labels), samples))
    return written


def test_request_has_labels_and_samples() -> None:
    lines = decode(
        b"cpu.load,cluster=fritz,type-id=0,1st=a value=1.5 1740027951\n"
        b'ccb,hostname=n1 log="x" 1740027951\n'
        b'disk,stype-id=/home free=7i,full=t,note="x" 1740027951123\n'
    )
    assert read(RemoteWrite().write_request(lines)) == [
        (
            {"__name__": "cpu_load", "_1st": "a", "cluster": "fritz", "type_id": "0"},
            [(1740027951000, 1.5)],
        ),
        ({"__name__": "disk_free", "stype_id": "/home"}, [(1740027951123, 7.0)]),
        ({"__name__": "disk_full", "stype_id": "/home"}, [(1740027951123, 1.0)]),
    ]


def test_request_sorts_samples_one_per_millisecond() -> None:
    """Prometheus rejects others; of two values in one millisecond the last wins."""
    lines = decode(b"m v=3 3\nm v=1 1\nn v=9 1\nm v=2 2\nm v=4 3\nm v=0 -1\n")
    assert read(RemoteWrite().write_request(lines)) == [
        ({"__name__": "m_v"}, [(-1000, 0.0), (1000, 1.0), (2000, 2.0), (3000, 4.0)]),
        ({"__name__": "n_v"}, [(1000, 9.0)]),
    ]


@needs_kernel
@given(st.lists(st.builds(
    Message,
    st.sampled_from(["m", "n", "läuft"]),
    st.dictionaries(st.sampled_from(["a", "b-c", "é"]), st.sampled_from("xyz"), max_size=2),
    st.floats(allow_nan=False, allow_infinity=False) | st.integers(-9, 9) | st.sampled_from(["t"]),
    st.integers(-(10**12), 10**12),
    st.sampled_from(["value", "x"]),
), max_size=30))  # fmt: skip
def test_kernel_writes_same_request_as_python(messages: list[Message]) -> None:
    lines = to_lines(messages)
    compiled = RemoteWrite().write_request(lines)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prometheus, "KERNEL", None)
        assert RemoteWrite().write_request(lines) == compiled


def test_body_is_unframed_snappy() -> None:
    """The specification requires the block format."""
    lines = decode(b"m v=1 1\n" * 1000)
    remote = RemoteWrite()
    body = remote.encode(lines)
    assert bytes(cramjam.snappy.decompress_raw(body)) == remote.write_request(lines)


def test_encoder_rejects_sample_without_time() -> None:
    with pytest.raises(EncodeError, match="without time"):
        RemoteWrite().encode(decode(b"m v=1"))


def test_label_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Job ids in tags do not let the cache of labels grow without limit."""
    monkeypatch.setattr(prometheus, "MAX_LABELS", 10)
    remote = RemoteWrite()
    for job in range(100):
        remote.encode(decode(b"m,job=%d v=1 1" % job))
        assert len(remote._labels) <= 11


def test_label_cache_belongs_to_table_of_lines() -> None:
    """The same code means another series in another table."""
    remote = RemoteWrite()
    first, second = (
        decode_in_python(text, SeriesTable(), "s", False) for text in (b"a v=1 1", b"b v=1 1")
    )
    for lines in (first, second, first):
        assert remote.write_request(lines) == RemoteWrite().write_request(lines)
    assert remote.write_request(first) != remote.write_request(second)


def test_request_is_accepted_by_victoriametrics(tmp_path: Path) -> None:
    now = int(time.time())
    lines = decode(b"load,hostname=n1 value=0.1 %d\nload,hostname=n2 value=7i %d" % (now, now))
    with VictoriaMetrics(tmp_path / "store") as store:
        request = urllib.request.Request(  # noqa: S310 - loopback
            f"{store.url}/api/v1/write", RemoteWrite().encode(lines), HEADERS
        )
        with urllib.request.urlopen(request, timeout=5) as answer:  # noqa: S310 - loopback
            assert answer.status == 204
        assert store.samples("load") == {
            ("load", frozenset({("hostname", "n1")}), 0.1, now * 1000),
            ("load", frozenset({("hostname", "n2")}), 7, now * 1000),
        }
