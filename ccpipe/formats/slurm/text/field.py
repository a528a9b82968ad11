"""From the cells of a table to the fields of a record: which columns, and how they are read."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from ccpipe.errors import DataError

MAX_MEMO = 4096
"""Texts of a column whose values are remembered."""
MAX_MEMO_TEXT = 200
"""Characters of a text that is remembered."""


Columns = Sequence[Sequence[str]]
"""The cells of a table, by column."""


class FieldSpec(NamedTuple):
    """One way to a field of a record."""

    name: str
    columns: tuple[str, ...]
    """In lower case; `read` takes a cell of each."""
    read: Callable[..., Any] | None = None
    """Returns the value or raises DataError; without it, the text, or None if it is empty."""
    varies: bool = False
    """Whether most cells differ, so that remembering their values is not worth it."""
    read_column: Callable[[Sequence[str]], Iterable[Any]] | None = None
    """What does the same for many cells, where that is faster."""
    is_free: bool = False
    """Whether a cell may hold the delimiter and newlines."""
    is_required: bool = False
    """Whether an empty cell is for `read` to refuse, rather than None."""


class FieldReader(NamedTuple):
    """Where in a table the values of a field are."""

    field: FieldSpec
    places: tuple[int, ...]
    remembered: "Memo | None"

    @classmethod
    def find(cls, fields: Iterable[FieldSpec], columns: Sequence[str]) -> "FieldReader | None":
        """Take the first way whose columns the table has."""
        for field in fields:
            if all(name in columns for name in field.columns):
                is_plain = len(field.columns) == 1 and field.read and not field.varies
                memo = Memo(field.read) if is_plain and field.read else None
                return cls(field, tuple(map(columns.index, field.columns)), memo)
        return None

    def values(self, columns: Columns) -> Iterable[Any]:
        """Read the cells of a column; raises DataError."""
        read = self.field.read
        cells = columns[self.places[0]]
        if self.field.read_column is not None:
            return self.field.read_column(cells)
        if self.remembered is not None:
            return map(self.remembered.__getitem__, cells)
        if read is None:
            return [cell or None for cell in cells]
        if len(self.places) == 1 and not self.field.is_required:
            return [read(cell) if cell else None for cell in cells]
        return map(read, *(columns[place] for place in self.places))

    def value(self, row: Sequence[str]) -> Any:
        """Read a cell; raises DataError that names the column."""
        try:
            (value,) = self.values([(cell,) for cell in row])
        except DataError as error:
            raise DataError(f"{self.field.columns[0]}: {error}") from None
        return value


class Memo(dict[str, Any]):
    """The values of the texts that were read last."""

    def __init__(self, read: Callable[[str], Any]) -> None:
        super().__init__()
        self._read = read

    def __missing__(self, text: str) -> Any:
        value = self._read(text)
        if len(text) <= MAX_MEMO_TEXT:
            if len(self) >= MAX_MEMO:
                self.clear()
            self[text] = value
        return value
