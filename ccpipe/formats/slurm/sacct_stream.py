"""sacct's output in either format, from a stream."""

from codecs import BOM_UTF8
from collections.abc import Iterator
from datetime import tzinfo

from ccpipe.formats.files import ReadableStream, read_piece
from ccpipe.formats.slurm.json import read_json
from ccpipe.formats.slurm.records import ParsedOutput, SacctRow
from ccpipe.formats.slurm.text.sacct import SacctReader


def read_stream(
    stream: ReadableStream, *, zone: tzinfo | None = None
) -> Iterator[ParsedOutput[SacctRow]]:
    """Read ``sacct -P`` piece by piece, or ``sacct --json`` as a whole, since it is one document.

    Local times of the text are those of `zone`.

    Raises
    ------
    DataError
        if it is neither, and where the stream is damaged.

    """
    piece = read_piece(stream).removeprefix(BOM_UTF8)
    if piece.lstrip()[:1] == b"{":
        whole = bytearray(piece)
        while piece := read_piece(stream):
            whole += piece
        yield read_json(bytes(whole))
        return
    reader = SacctReader(zone=zone)
    while piece:
        yield reader.feed(piece)
        piece = read_piece(stream)
    yield reader.flush()
