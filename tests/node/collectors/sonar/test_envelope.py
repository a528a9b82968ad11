"""What both of Sonar's collectors share: times and errors."""

import os
import re
import time
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import MissingExtra
from ccpipe.formats.sonar import decode, encode, timestamp
from ccpipe.node.collectors.sonar.envelope import Errors, local
from ccpipe.node.collectors.sonar.sample import SonarSample
from ccpipe.node.collectors.sonar.sysinfo import SonarSysinfo
from tests.node.conftest import PACKED, unpack


def test_each_error_is_told_once() -> None:
    errors = Errors()
    for text in ("b", "a", "b"):
        errors.note(OSError(5, text))
    reported = errors.reported(10**18, "fox.test", "n1")
    assert [error.detail for error in reported] == ["[Errno 5] b", "[Errno 5] a"]
    assert {(error.cluster, error.node) for error in reported} == {("fox.test", "n1")}
    assert {timestamp.parse(error.time) for error in reported} == {10**18}


def test_errors_have_an_end() -> None:
    """How many more there were is the last one; none is longer than a few lines."""
    errors = Errors()
    for number in range(50):
        errors.note(f"{number} " + "x" * 1000)
    reported = errors.reported(0, "c", "n")
    assert len(reported) == 21
    assert reported[-1].detail == "30 more errors"
    assert max(len(error.detail) for error in reported) == 500


def fail(error: Exception) -> None:
    raise error


def test_what_is_noted_does_not_go_further() -> None:
    errors = Errors()
    with errors.noted():
        fail(MissingExtra("nvidia-ml-py", "gpu"))
    assert list(errors.texts) == [str(MissingExtra("nvidia-ml-py", "gpu"))]
    with pytest.raises(KeyError), errors.noted():
        fail(KeyError(1))


def test_an_envelope_of_errors_is_strictly_what_the_specification_has() -> None:
    """Whatever text stands in it: half characters are replaced, and nothing is empty."""
    errors = Errors()
    errors.note("bad name \udcff")
    errors.note("")
    envelope = errors.envelope(1_740_027_953 * 10**9, "fox.test", "n1")
    [decoded] = decode(encode(envelope), strict=True)
    assert [error.detail for error in decoded.errors] == ["bad name ?", "str"]
    assert decoded.data is None


@pytest.mark.parametrize("zone", ["UTC", "Europe/Oslo", "Asia/Kolkata", "America/St_Johns"])
def test_times_are_local_with_their_offset(monkeypatch: pytest.MonkeyPatch, zone: str) -> None:
    try:
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        for seconds in (1_735_689_600, 1_751_328_000):
            text = local(seconds * 10**9 + 5)
            assert timestamp.is_strict(text)
            assert datetime.fromisoformat(text).timestamp() == seconds
            assert text[:19] == time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(seconds))
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("node")
    for tree in ("sonar", "topology", "kfd"):
        unpack((PACKED / f"{tree}.txt").read_text(), folder)
    return folder


FILES = re.findall(
    r"^## (/\S+)$",
    "".join((PACKED / f"{tree}.txt").read_text().partition("@ second")[0]
            for tree in ("sonar", "topology", "kfd")),
    re.MULTILINE,
)  # fmt: skip
WORDS = ["", "-1", "0", "x", "nan", "99999999999", str(2**64), "9" * 20, "\udcff", " ", "\n"]


@given(st.sampled_from(FILES), st.floats(0, 1, exclude_max=True), st.sampled_from(WORDS))
def test_any_change_of_a_file_gives_valid_envelopes(
    node: Path, name: str, place: float, word: str
) -> None:
    """One word of one file is another: both collectors still keep the specification's rules."""
    path = node / name.strip("/")
    whole = path.read_bytes()
    spans = [found.span() for found in re.finditer(rb"\w+|\n", whole)] or [(0, 0)]
    start, end = spans[int(place * len(spans))]
    path.write_bytes(whole[:start] + os.fsencode(word) + whole[end:])
    try:
        for collector in (
            SonarSample(cluster="c", node="n", root=str(node), exclude_system_jobs=False),
            SonarSysinfo(cluster="c", node="n", root=str(node)),
        ):
            envelopes = list(collector.collect(1_740_027_950 * 10**9))
            assert envelopes
            for envelope in envelopes:
                decoded = decode(encode(envelope), strict=True)
                assert (decoded, decoded.rejected) == ([envelope], [])
    finally:
        path.write_bytes(whole)
