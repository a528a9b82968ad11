"""The inputs that fuzzing found: whatever raised once must not raise again."""

import contextlib

import pytest

from ccpipe.bus.nats.protocol.frames import BrokenFrame, split_in_python
from ccpipe.bus.nats.protocol.splitter import split
from ccpipe.bus.nats.publisher import Outgoing
from ccpipe.errors import DataError
from ccpipe.formats import sonar
from ccpipe.formats.lineprotocol import decode
from ccpipe.formats.otlp.decoder import MetricsDecoder
from ccpipe.formats.otlp.logs import LogsDecoder
from ccpipe.formats.otlp.responses import decode_response
from ccpipe.node.agent.spool import decode_frames, encode_frames
from scripts import fuzz_corpus


@pytest.mark.parametrize("lenient", [False, True])
def test_decoder_reads_corpus_of_lines(lenient: bool) -> None:
    """Rows or rejections."""
    inputs = fuzz_corpus.read("lines")
    assert inputs
    for data in inputs:
        lines = decode(data, lenient=lenient)
        assert len(list(lines)) == len(lines)
        assert all(bad.reason for bad in lines.rejected)


@pytest.mark.parametrize("strict", [False, True])
def test_decoder_reads_corpus_of_sonar_envelopes(strict: bool) -> None:
    """Envelopes or rejections; the first byte of an input is not part of the payload."""
    inputs = fuzz_corpus.read("sonar")
    assert inputs
    for data in inputs:
        decoded = sonar.decode(data[1:], strict=strict)
        assert decoded or decoded.rejected
        assert all(bad.reason for bad in decoded.rejected)


def test_parser_reads_corpus_of_frames() -> None:
    """Frames or a named error, equally from the kernel and the Python code."""
    inputs = fuzz_corpus.read("frames")
    assert inputs
    for data in inputs:
        outcomes: list[object] = []
        for cut in (split, split_in_python):
            try:
                frames, *rest = cut(bytearray(data), 0, len(data))
                outcomes.append(([(sid, list(each)) for sid, each in frames], rest))
            except BrokenFrame as error:
                outcomes.append(str(error))
        assert outcomes[0] == outcomes[1]


def test_reader_reads_corpus_of_spool_files() -> None:
    """Undamaged messages, also after damaged bytes."""
    inputs = fuzz_corpus.read("spool")
    assert inputs
    last = Outgoing("s", b"m value=1", "1")
    for number, *content in inputs:
        found = list(decode_frames(number, bytes(content) + encode_frames(number, [last])))
        assert found[-1] == (0, last)


def test_decoders_read_corpus_of_otlp() -> None:
    """Metrics, logs and responses: each is read or refused by name."""
    inputs = fuzz_corpus.read("otlp")
    assert inputs
    metrics, logs = MetricsDecoder(), LogsDecoder()
    for data in inputs:
        for decode_otlp in (metrics.decode, logs.decode):
            with contextlib.suppress(DataError):
                decode_otlp(data, 1)
        with contextlib.suppress(DataError):
            decode_response(data)
