"""New series: detecting them, their digests, and their rows in binary COPY format.

Each function has a compiled twin in ``_kernel.pyx``.
"""

import hashlib
import struct
from array import array
from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from ccpipe.errors import RejectedError
from ccpipe.formats.lineprotocol import Lines, SeriesTable
from ccpipe.sinks.postgres.rows import KERNEL, Ids

TAG_COLUMNS = ("cluster", "hostname", "type", "type-id", "stype", "stype-id")
"""Tags with a column of their own, with ``_`` for ``-``; the others share ``tags``."""

DIGEST = 16
"""Bytes of the digest that identifies a series and field in the database."""

Pairs: TypeAlias = "array[int]"
"""Alternating codes of series and fields, in the table of the lines."""


def unknown_pairs(lines: Lines, ids: Ids) -> Pairs:
    """Return each series and field of some lines without an id, once."""
    if KERNEL is not None:
        found: Pairs = KERNEL.unknown_pairs(lines, ids)
        return found
    pairs = set(zip(lines.series, lines.fields, strict=True))
    return array("i", [code for pair in pairs if not ids[pair[1]][pair[0]] for code in pair])


def keys_of(lines: Lines, pairs: Pairs) -> list[bytes]:
    """Return the canonical encoding of each series.

    Raises
    ------
    RejectedError
        for rows of series containing NUL, which Influx line protocol allows and PostgreSQL
        cannot store.

    """
    key_of = lines.table.codes.key
    keys = list(map(key_of, pairs[::2]))
    bad_fields = {place for place, name in enumerate(lines.table.fields) if "\0" in name}
    if b"\0" in b"".join(keys) or not bad_fields.isdisjoint(pairs[1::2]):
        rows = zip(lines.series, lines.fields, strict=True)
        raise RejectedError(
            "PostgreSQL cannot store a name containing NUL",
            [
                row
                for row, (code, field) in enumerate(rows)
                if field in bad_fields or b"\0" in key_of(code)
            ],
        )
    return keys


def digests(keys: list[bytes], fields: Sequence[str], pairs: Pairs) -> bytes:
    """Return the concatenated digests of each series and field."""
    if KERNEL is not None:
        written: bytes = KERNEL.digests(keys, fields, pairs)
        return written
    return digests_in_python(keys, fields, pairs)


def digests_in_python(keys: list[bytes], fields: Sequence[str], pairs: Pairs) -> bytes:
    """Compute digests without the kernel."""
    # Spaces in the key are escaped, so this separator is unambiguous.
    endings = [b" " + name.encode() for name in fields]
    return b"".join(
        hashlib.blake2b(key + endings[field], digest_size=DIGEST).digest()
        for key, field in zip(keys, pairs[1::2], strict=True)
    )


def series_rows(
    table: SeriesTable, keys: list[bytes], pairs: Pairs, digests: bytes, ids: "array[int]"
) -> bytearray:
    """Encode a row for each series and field whose id is 0, with its index and digest."""
    if KERNEL is not None:
        written: bytearray = KERNEL.series_rows(table, keys, pairs, digests, ids)
        return written
    return series_rows_in_python(table, pairs, digests, ids)


def series_rows_in_python(
    table: SeriesTable, pairs: Pairs, digests: bytes, ids: "array[int]"
) -> bytearray:
    """Encode rows without the kernel."""
    parts = [b"PGCOPY\n\xff\r\n\0", bytes(8)]
    for place in (place for place, id_ in enumerate(ids) if not id_):
        name, tags, _ = table.series[pairs[2 * place]]
        own = [tags.get(tag) for tag in TAG_COLUMNS]
        others = {tag: tags[tag] for tag in tags if tag not in TAG_COLUMNS}
        texts = (name, table.fields[pairs[2 * place + 1]], *own)
        cells = (
            struct.pack(">i", place),
            digests[DIGEST * place :][:DIGEST],
            *(None if text is None else text.encode() for text in texts),
            b"\1" + msgspec.json.encode(others),
        )
        parts.append(struct.pack(">h", len(cells)))
        parts += [_NULL if each is None else struct.pack(">i", len(each)) + each for each in cells]
    return bytearray().join([*parts, struct.pack(">h", -1)])


_NULL = struct.pack(">i", -1)


def store_ids(ids: Ids, pairs: Pairs, numbers: "array[int]") -> None:
    """Record the ids of series and fields."""
    if KERNEL is not None:
        KERNEL.store_ids(ids, pairs, numbers)
        return
    for code, field, number in zip(pairs[::2], pairs[1::2], numbers, strict=True):
        ids[field][code] = number
