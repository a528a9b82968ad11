"""Bodies and credentials of strangers: any bytes are read within bounds or refused."""

import contextlib
import gzip
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.sources.http_requests import CHUNK, Credentials, Refused, Unpacker


def unpacked(body: bytes, size: int) -> bytes:
    """Unpack a body that comes in chunks of a size."""
    unpack = Unpacker()
    chunks = [body[i : i + size] for i in range(0, len(body), size)]
    parts = [part for chunk in chunks for part in unpack.pieces(chunk)]
    assert all(len(part) <= CHUNK for part in parts)
    assert unpack.ended
    return b"".join(parts)


@given(
    st.lists(st.binary(max_size=300) | st.integers(0, 300_000).map(bytes), max_size=3),
    st.integers(1, 400),
    st.booleans(),
)
def test_what_was_packed_is_unpacked(members: list[bytes], size: int, is_gzip: bool) -> None:
    """In pieces of bounded size, whatever the chunks; gzip may have several members."""
    if not is_gzip:
        members = members[:1]
    pack = gzip.compress if is_gzip else zlib.compress
    assert unpacked(b"".join(map(pack, members)), size) == b"".join(members)


@given(st.binary(max_size=200), st.integers(1, 50))
def test_any_bytes_are_unpacked_or_refused(body: bytes, size: int) -> None:
    """Nothing else happens."""
    unpack = Unpacker()
    with contextlib.suppress(Refused):
        for start in range(0, len(body), size):
            list(unpack.pieces(body[start : start + size]))


@given(st.binary(min_size=30, max_size=300), st.data())
def test_a_body_that_is_cut_off_is_known(body: bytes, data: st.DataObject) -> None:
    """Its end is missing."""
    packed = gzip.compress(body)
    unpack = Unpacker()
    for part in unpack.pieces(packed[: data.draw(st.integers(11, len(packed) - 1))]):
        assert body.startswith(part)
    assert not unpack.ended


HEADERS = st.text() | st.binary().map(lambda raw: raw.decode(errors="surrogateescape"))


@given(HEADERS | HEADERS.map("Basic ".__add__) | HEADERS.map("Bearer ".__add__))
def test_any_header_is_refused_that_is_not_right(header: str) -> None:
    """A stranger gets a 401, never an error of ours."""
    with pytest.raises(Refused) as caught:
        Credentials({"user": "a password"}, "a token of many characters").check(header)
    assert caught.value.status == 401


def test_without_credentials_everybody_may_send() -> None:
    """That is for loopback."""
    Credentials({}, "").check("anything")
