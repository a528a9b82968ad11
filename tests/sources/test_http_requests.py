"""Bodies and credentials of untrusted clients: any bytes are read within bounds or rejected."""

import asyncio
import contextlib
import gzip
import io
import json
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.config import Size
from ccpipe.sources.http_requests import CHUNK, STREAM_PART, Credentials, Refused, Unpacker
from tests.conftest import eventually
from tests.formats.sonar.test_kprox import control_of
from tests.sources.http_client import SonarGate, basic, envelope_of, error_of, running


def unpacked(body: bytes, size: int) -> bytes:
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
def test_unpacker_restores_compressed_data(members: list[bytes], size: int, is_gzip: bool) -> None:
    """In pieces of bounded size, whatever the chunks; gzip may have several members."""
    if not is_gzip:
        members = members[:1]
    pack = gzip.compress if is_gzip else zlib.compress
    assert unpacked(b"".join(map(pack, members)), size) == b"".join(members)


@given(st.binary(max_size=200), st.integers(1, 50))
def test_unpacker_reads_or_rejects_any_bytes(body: bytes, size: int) -> None:
    unpack = Unpacker()
    with contextlib.suppress(Refused):
        for start in range(0, len(body), size):
            list(unpack.pieces(body[start : start + size]))


@given(st.binary(min_size=30, max_size=300), st.data())
def test_unpacker_detects_truncated_body(body: bytes, data: st.DataObject) -> None:
    packed = gzip.compress(body)
    unpack = Unpacker()
    for part in unpack.pieces(packed[: data.draw(st.integers(11, len(packed) - 1))]):
        assert body.startswith(part)
    assert not unpack.ended


HEADERS = st.text() | st.binary().map(lambda raw: raw.decode(errors="surrogateescape"))


@given(HEADERS | HEADERS.map("Basic ".__add__) | HEADERS.map("Bearer ".__add__))
def test_credentials_reject_any_invalid_header(header: str) -> None:
    """The response is 401, never an internal error."""
    with pytest.raises(Refused) as caught:
        Credentials({"user": "a password"}, "a token of many characters").check(header)
    assert caught.value.status == 401


def message(envelope: Any, user: str = "", password: str = "", size: int | None = None) -> bytes:
    data = json.dumps(envelope).encode() + b"\n"
    if size is not None:
        data += b" " * (size - len(data))
    secret = {"sasl-user": user, "sasl-password": password} if user else {}
    return b"\n" + control_of(data, **secret) + data


async def test_stream_is_stored_before_it_is_answered() -> None:
    sink = SonarGate(open=False)
    async with running(sink, format="sonar") as client:
        body = b"".join(message(envelope_of(f"c{number}")) for number in range(20)) + b"\n\n"
        posting = asyncio.create_task(client.post(body, "/"))
        await eventually(lambda: len(client.source._unsafe) == 1)
        assert not posting.done()
        sink.open.set()
        assert await posting == (204, "")
        assert await client.post(b"\n", "/kprox") == (204, "")
    assert [each.data.attributes.cluster for each in sink.written] == [f"c{n}" for n in range(20)]


async def test_stream_larger_than_the_memory_is_stored_in_parts() -> None:
    sink = SonarGate()
    body = b"".join(message(envelope_of(f"c{n}"), size=2**19) for n in range(24))
    async with running(sink, format="sonar", max_memory=Size(4 * STREAM_PART)) as client:
        assert len(body) > 2 * client.source.max_memory
        headers = {"Content-Type": "application/octet-stream"}
        async with client.session.post(
            client.url + "/", data=io.BytesIO(body), headers=headers
        ) as answer:
            assert answer.status == 204
    assert [each.data.attributes.cluster for each in sink.written] == [f"c{n}" for n in range(24)]


async def test_stream_requires_permission_for_each_cluster(tmp_path: Path) -> None:
    """Messages before the wrong one are stored, later ones are not."""
    (tmp_path / "users").write_text("fox:x\nhare:x\n")
    good = message(envelope_of("fox"), "fox", "x")
    cases: list[tuple[bytes, dict[str, str], int]] = [
        (message(envelope_of("fox"), "fox", "wrong"), {}, 401),
        (message(envelope_of("fox"), "other", "x"), {}, 401),
        (message(envelope_of("fox")), {}, 401),
        (message(envelope_of("fox"), "hare", "x"), {}, 403),
        (message(envelope_of("hare"), "fox", "x"), {}, 403),
        (message(error_of("hare"), "fox", "x"), {}, 403),
        (message(envelope_of("fox"), "fox", "wrong"), basic("fox"), 401),
        (message(envelope_of("hare")), basic("fox"), 403),
        (message(envelope_of("fox")), basic("fox"), 204),
        (message(envelope_of("hare"), "hare", "x"), basic("fox"), 204),
    ]
    for bad, headers, status in cases:
        sink = SonarGate()
        async with running(sink, format="sonar", users_file=str(tmp_path / "users")) as client:
            assert (await client.post(good + bad + good, "/", headers=headers))[0] == status
        assert len(sink.written) == (3 if status == 204 else 1), (bad, headers)


async def test_bad_envelope_of_stream_is_rejected_alone() -> None:
    sink = SonarGate()
    async with running(sink, format="sonar") as client:
        body = message(envelope_of("a")) + message({}) + message(envelope_of("b"))
        status, text = await client.post(body, "/")
        assert (status, "dropped=1" in text) == (400, True)
        status, text = await client.post(message(envelope_of("c")) + b"junk\n", "/")
        assert (status, "control object 2" in text) == (400, True)
        status, text = await client.post(message(envelope_of("d"))[:-5], "/")
        assert (status, "truncated" in text) == (400, True)
        status, _ = await client.post(control_of(bytes(17 * 2**20)), "/")
        assert status == 413
    assert [each.data.attributes.cluster for each in sink.written] == ["a", "b", "c"]


async def test_stream_is_stored_up_to_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ccpipe.sources.http.MAX_STREAM", 2 * STREAM_PART)
    sink = SonarGate()
    body = b"".join(message(envelope_of(f"c{n}"), size=2**19) for n in range(12))
    async with running(sink, format="sonar") as client:
        headers = {"Content-Type": "application/octet-stream"}
        async with client.session.post(
            client.url + "/", data=io.BytesIO(body), headers=headers
        ) as answer:
            assert answer.status == 413
    names = [each.data.attributes.cluster for each in sink.written]
    assert names == [f"c{n}" for n in range(len(names))]
    assert 1 < len(names) < 4


async def test_stream_is_answered_with_503_if_not_stored() -> None:
    """Sonar's curl repeats a request that is answered with 503."""
    sink = SonarGate()
    sink.fails = True
    async with running(sink, format="sonar", timeout=0.5) as client:
        assert (await client.post(message(envelope_of("a")), "/"))[0] == 503
        sink.fails = False
        client.source.timeout = 60
        assert (await client.post(message(envelope_of("a")), "/"))[0] == 204


async def test_stream_is_accepted_from_sonar_command() -> None:
    """It is curl, with options that repeat a request answered with 503."""
    sink = SonarGate()
    async with running(sink, format="sonar") as client:
        curl = await asyncio.create_subprocess_exec(
            "curl", "--silent", "--show-error", "--data-binary", "@-",
            "-H", "Content-Type: application/octet-stream", "--retry", "3", "--retry-connrefused",
            "-w", "%{http_code}", client.url + "/", stdin=-1, stdout=-1,
        )  # fmt: skip
        out, _ = await curl.communicate(message(envelope_of("a")) * 2000)
        assert out == b"204"
    assert len(sink.written) == 2000
