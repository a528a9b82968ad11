"""Names that configuration files used before, and what to write instead: all of them, in one place.

A file that still uses one is refused with a message that names the new one.
"""

KEYS = {
    "publish.dead_file": "publish.dead_letter_file",
}
"""Keys of ``ccpipe.toml`` and recipes, by their full path."""

OPTIONS = {
    ("collectors", "command", "least"): "minimum",
}
"""Options of parts, by entry-point group, name of the part and option."""

PARTS: dict[tuple[str, str], str] = {}
"""Parts, by entry-point group and name; the value is what a recipe says instead, as TOML."""
