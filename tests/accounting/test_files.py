"""How ``ccpipe acct`` reads files: in their order, in blocks, with progress and complaints."""

import gzip
import os
import pty
import threading
from pathlib import Path

import pytest

from ccpipe import terminal as terminal_module
from ccpipe.accounting import files as acct_files
from ccpipe.accounting.files import BEGIN, FileBlock, Files, Start
from ccpipe.formats.gridengine import ParsedChunk, read
from tests.paths import TEST_DATA

DATA = TEST_DATA / "gridengine"


def parts(files: Files, *paths: Path, start: Start = BEGIN) -> list[tuple[FileBlock, ParsedChunk]]:
    return list(
        files.each_block(paths, lambda b: read(b.payload, file=b.name, offset=b.offset), start)
    )


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acct_files, "BLOCK", 1000)


@pytest.mark.usefixtures("small_blocks")
def test_blocks_come_in_order_and_know_their_place(tmp_path: Path) -> None:
    """However many threads read ahead; offsets and lines start over with each file."""
    packed = tmp_path / "a.gz"
    packed.write_bytes(gzip.compress((DATA / "accounting").read_bytes()))
    found = parts(Files(), DATA / "accounting", packed)
    assert len(found) > 20
    whole = (DATA / "accounting").read_bytes()
    for name in (str(DATA / "accounting"), str(packed)):
        blocks = [block for block, _ in found if block.name == name]
        assert b"".join(block.payload for block in blocks) == whole
        for block in blocks:
            assert whole[block.offset :].startswith(block.payload)
            assert block.before == whole.count(b"\n", 0, block.offset)


@pytest.mark.usefixtures("small_blocks")
def test_reading_can_begin_anywhere() -> None:
    """Then offsets and lines are still those of the file."""
    whole = (DATA / "accounting").read_bytes()
    offset = whole.index(b"\n", 5000) + 1
    lines = whole.count(b"\n", 0, offset)
    found = parts(Files(), DATA / "accounting", start=Start(offset, lines))
    assert b"".join(block.payload for block, _ in found) == whole[offset:]
    assert found[0][0].before == lines
    assert found[-1][0].before == whole.count(b"\n", 0, found[-1][0].offset)


@pytest.mark.usefixtures("small_blocks")
def test_bad_lines_are_told_with_their_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In whichever block they stand; what steers a terminal is escaped."""
    whole = (DATA / "accounting").read_bytes()
    bad = tmp_path / "bad\x1b[31m"
    bad.write_bytes(whole + b"x\x1b[2J\n")
    files = Files()
    parts(files, bad)
    reported = capsys.readouterr().err
    assert files.problems == 1
    assert reported.startswith(f"{tmp_path}/bad\\x1b[31m:133: offset {len(whole)}: 1 fields where")
    assert "\x1b[2J" not in reported


@pytest.mark.usefixtures("small_blocks")
def test_a_terminal_is_told_how_far_it_has_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line, rewritten, and taken away at the end; only after some patience."""

    def said(delay: float) -> bytes:
        ours, theirs = pty.openpty()
        drawn: list[bytes] = []

        def listen() -> None:
            try:
                while piece := os.read(ours, 4096):
                    drawn.append(piece)
            except OSError:
                pass  # this is how Linux says that the other side has closed

        listener = threading.Thread(target=listen)
        listener.start()
        monkeypatch.setattr(terminal_module, "PROGRESS_DELAY", delay)
        with os.fdopen(theirs, "w") as terminal, monkeypatch.context() as patch:
            patch.setattr("sys.stderr", terminal)
            parts(Files(), DATA / "accounting")
        listener.join()
        os.close(ours)
        return b"".join(drawn)

    shown = said(0.0)
    assert f"\r\x1b[K{DATA / 'accounting'}: 0 MiB read".encode() in shown
    assert shown.endswith(b"\r\x1b[K")
    assert said(60.0) == b""
