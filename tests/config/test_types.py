"""The declared types of configuration, of a key path."""

from typing import Annotated, Any

import msgspec

from ccpipe.config.site import Recipe, SpoolOptions
from ccpipe.config.types import bare_type, field_types, type_at
from ccpipe.config.units import Duration, Size


def test_a_path_leads_through_structs_and_containers() -> None:
    """Elements of dicts and lists too; where nothing is declared it is Any."""
    assert type_at(Recipe, ["publish", "spool"]) is SpoolOptions
    assert bare_type(type_at(Recipe, ["batch", "bytes"])) is Size
    assert type_at(Recipe, ["bus", "servers", "0"]) is str
    assert type_at(Recipe, ["publish", "tags", "rack"]) is str
    assert type_at(Recipe, ["publish", "collectors", "cpu", "interval"]) is Any
    assert type_at(Recipe, ["bus", "no_such_key"]) is Any


def test_annotations_and_none_are_taken_off() -> None:
    """However they are nested."""
    assert bare_type(Annotated[int, msgspec.Meta(ge=1)] | None) is int
    assert bare_type(Duration | None) is Duration
    assert bare_type(Size) is Size


def test_keys_are_as_they_are_written() -> None:
    """A field that is renamed for the file has the file's name."""

    class Renamed(msgspec.Struct, rename="kebab"):
        two_words: int

    assert field_types(Renamed) == {"two-words": int}
