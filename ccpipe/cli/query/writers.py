"""The result of a query as a table, JSON lines, CSV and Parquet, one batch after the other.

DuckDB converts the values to text, and Arrow joins them to lines: a loop over rows in Python would
take ten times as long. Only the table, which is for people, has one.
"""

import csv
import io
import itertools
import shutil
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import ClassVar

from ccpipe.cli.console.output import cut, fit
from ccpipe.errors import MissingExtra, UsageError
from ccpipe.terminal import data_for_stdout, note, open_stdout, paint, plural, printable

try:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq
except ImportError:
    raise MissingExtra("pyarrow", "query") from None

_SIGNED = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")
_INTEGERS = (*_SIGNED, *(f"U{name}" for name in _SIGNED))
_FLOATS = ("FLOAT", "DOUBLE")
_NESTED = ("MAP(", "STRUCT(", "UNION(")
_SPECIAL = (b'"', b",", b"\n", b"\r")


class ResultWriter(ABC):
    """Writes the result of a query to standard output."""

    batch_rows: ClassVar[int] = 20_000
    """Number of rows of a batch, which bounds the memory."""

    def __init__(self) -> None:
        self.rows = 0
        self._output = _Output()

    @abstractmethod
    def columns(self, names: Sequence[str], types: Sequence[str]) -> list[str]:
        """Return the SQL expressions to select from the result; ``#1`` is its first column."""

    def begin(self, names: Sequence[str], schema: pa.Schema) -> None:  # noqa: B027
        """Write what precedes the rows."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows."""
        self.rows += batch.num_rows
        self._output.write(self._encode(batch))

    def end(self) -> None:  # noqa: B027 - most have no end
        """Write what follows the rows."""

    def _encode(self, batch: pa.RecordBatch) -> bytes | memoryview:
        raise NotImplementedError


class ResultJsonWriter(ResultWriter):
    """One object a line; DuckDB writes them."""

    def columns(self, names: Sequence[str], types: Sequence[str]) -> list[str]:
        values = [
            f"CASE WHEN isfinite(#{i}) THEN #{i} END" if kind in _FLOATS else _value(i, kind)
            for i, kind in enumerate(types, 1)
        ]
        fields = map(" := ".join, zip(map(_quoted_name, names), values, strict=True))
        return [f"to_json(struct_pack({', '.join(fields)}))::VARCHAR || chr(10)"]

    def _encode(self, batch: pa.RecordBatch) -> memoryview:
        return _text(batch.column(0))


class ResultCsvWriter(ResultWriter):
    """A header and rows; times are ISO 8601, lists and tables JSON, and null is empty."""

    def columns(self, names: Sequence[str], types: Sequence[str]) -> list[str]:  # noqa: ARG002
        return [
            f"to_json(#{i})::VARCHAR" if _is_nested(kind) else f"{_value(i, kind)}::VARCHAR"
            if kind not in _FLOATS else f"#{i}"
            for i, kind in enumerate(types, 1)
        ]  # fmt: skip

    def begin(self, names: Sequence[str], schema: pa.Schema) -> None:  # noqa: ARG002
        header = io.StringIO()
        csv.writer(header, lineterminator="\n").writerow(names)
        self._output.write(header.getvalue().encode())

    def _encode(self, batch: pa.RecordBatch) -> memoryview:
        *cells, last = map(_csv_cells, batch.columns)
        ended = pc.binary_join_element_wise(last, "\n", "", null_handling="replace")
        return _text(pc.binary_join_element_wise(*cells, ended, ",", null_handling="replace"))


class ResultParquetWriter(ResultWriter):
    """A Parquet file, compressed with zstd."""

    batch_rows = 122_880
    """A row group, of the size that DuckDB writes."""

    def columns(self, names: Sequence[str], types: Sequence[str]) -> list[str]:  # noqa: ARG002
        return ["*"]

    def begin(self, names: Sequence[str], schema: pa.Schema) -> None:  # noqa: ARG002
        file = pa.PythonFile(self._output, mode="w")
        try:
            self._writer = pq.ParquetWriter(file, schema, compression="zstd")
        except pa.ArrowNotImplementedError as error:
            raise UsageError(f"-o parquet: {error}; cast the column to VARCHAR") from None

    def write(self, batch: pa.RecordBatch) -> None:
        self.rows += batch.num_rows
        self._writer.write_batch(batch)

    def end(self) -> None:
        self._writer.close()


class ResultTableWriter(ResultWriter):
    """Columns for people, as wide as the first batch needs.

    On a terminal, texts are cut to fit its width, and columns beyond it are left out.
    """

    def columns(self, names: Sequence[str], types: Sequence[str]) -> list[str]:  # noqa: ARG002
        self._is_number = [_is_number(kind) for kind in types]
        return [
            f"printf('%.6g', #{i}::DOUBLE)" if kind in _FLOATS else f"#{i}::VARCHAR"
            for i, kind in enumerate(types, 1)
        ]

    def begin(self, names: Sequence[str], schema: pa.Schema) -> None:  # noqa: ARG002
        self._names = [printable(name) for name in names]
        self._widths: list[int] = []
        self._is_cut = sys.stdout.isatty()

    def write(self, batch: pa.RecordBatch) -> None:
        columns = [_printable_cells(column) for column in batch.columns]
        if not self._widths:
            self._begin_table(columns)
        self.rows += batch.num_rows
        rows = zip(*columns[: len(self._widths)], strict=True)
        self._output.write("".join(map(self._line, rows)).encode())

    def end(self) -> None:
        if not self._widths:
            self._begin_table([[] for _ in self._names])
        note(plural(self.rows, "row"), colour="")
        if hidden := self._names[len(self._widths) :]:
            note(f"not shown for lack of width: {', '.join(hidden)}")

    def _begin_table(self, columns: Sequence[Sequence[str]]) -> None:
        widths = [
            max(map(len, itertools.chain([name], cells)))
            for name, cells in zip(self._names, columns, strict=True)
        ]
        room = shutil.get_terminal_size().columns if self._is_cut else sys.maxsize
        self._widths = fit(widths, self._is_number, room)
        heads = self._line(self._names[: len(self._widths)])
        print(paint(heads[:-1], "bold"), flush=True)

    def _line(self, row: Iterable[str]) -> str:
        cells = []
        for cell, width, is_number in zip(row, self._widths, self._is_number, strict=False):
            if self._is_cut and len(cell) > width and not is_number:
                cells.append(cut(cell, width))
            else:
                cells.append(cell.rjust(width) if is_number else cell.ljust(width))
        return "  ".join(cells).rstrip() + "\n"


WRITERS: dict[str, type[ResultWriter]] = {
    "table": ResultTableWriter,
    "json": ResultJsonWriter,
    "csv": ResultCsvWriter,
    "parquet": ResultParquetWriter,
}


class _Output:
    """Standard output without a buffer, for bytes; all of them are escaped for a terminal."""

    closed = False  # Arrow asks

    def __init__(self) -> None:
        self._file = open_stdout(is_data=False).detach()  # type: ignore[attr-defined]
        self._has_failed = False

    def write(self, data: bytes | memoryview) -> int:
        """Write all data; after an error or an interrupt Arrow would still end its file."""
        rest = memoryview(data_for_stdout(bytes(data)) if self._file.isatty() else data)
        try:
            while rest and not self._has_failed:
                rest = rest[self._file.write(rest) or 0 :]
        except BaseException:
            self._has_failed = True
            raise
        return len(data)

    def flush(self) -> None:
        """There is no buffer."""


def _value(number: int, kind: str) -> str:
    """Return the SQL expression of a column, with times in ISO 8601."""
    if kind == "TIMESTAMP WITH TIME ZONE":
        utc = f"replace((#{number} AT TIME ZONE 'UTC')::VARCHAR, ' ', 'T') || 'Z'"
        return f"CASE WHEN isfinite(#{number}) THEN {utc} ELSE #{number}::VARCHAR END"
    if kind.startswith("TIMESTAMP") and not _is_nested(kind):
        return f"replace(#{number}::VARCHAR, ' ', 'T')"
    return f"#{number}"


def _is_nested(kind: str) -> bool:
    return kind.endswith("]") or kind.startswith(_NESTED)


def _is_number(kind: str) -> bool:
    return kind in (*_INTEGERS, *_FLOATS) or kind.startswith("DECIMAL(")


def _quoted_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _csv_cells(column: pa.Array) -> pa.Array:
    """Return a column as text, quoted where CSV needs it, which few columns do."""
    cells = column.cast(pa.string())
    if not any(map(bytes(_text(cells)).__contains__, _SPECIAL)):
        return cells
    quoted = pc.binary_join_element_wise('"', pc.replace_substring(cells, '"', '""'), '"', "")
    return pc.if_else(pc.match_substring_regex(cells, '[",\r\n]'), quoted, cells)


def _printable_cells(column: pa.Array) -> list[str]:
    cells = column.fill_null("").to_pylist()
    return cells if "".join(cells).isprintable() else list(map(printable, cells))


def _text(column: pa.Array) -> memoryview:
    """Return the bytes of all texts of a column, one after the other, without copying them."""
    _, offsets, data = column.buffers()
    if data is None:
        return memoryview(b"")
    bounds = memoryview(offsets).cast("i")
    return memoryview(data)[bounds[column.offset] : bounds[column.offset + len(column)]]
