"""The way from the cells of a table to the fields of a record."""

from ccpipe.formats.slurm.text.field import FieldReader, FieldSpec
from ccpipe.formats.slurm.values import text


def test_values_that_repeat_are_read_once() -> None:
    """That is what makes columns fast."""
    cells = []

    def read(cell: str) -> str | None:
        cells.append(cell)
        return text(cell)

    source = FieldReader.find([FieldSpec("name", ("a",), read)], ["a"])
    assert source is not None
    assert list(source.values([["x", "y", "x", "x"]])) == ["x", "y", "x", "x"]
    assert cells == ["x", "y"]
