"""Former names in configuration files, and their replacements: all in one place.

A file that uses a former name is rejected with a message that gives the new one.
"""

KEYS = {
    "publish.dead_file": "publish.dead_letter_file",
}
"""Keys of ``ccpipe.toml`` and of recipes, by their full path."""

OPTIONS = {
    ("sources", "nats", "lenient"): 'codec = { use = "line", lenient = … }',
    ("sources", "nats", "precision"): 'codec = { use = "line", precision = … }',
    ("sinks", "nats", "precision"): 'codec = { use = "line", precision = … }',
    ("translators", "aggregate", "least"): "minimum",
}
"""Options of parts: group of entry points, name of the part, option."""

PARTS = {
    ("sources", "sonar"): 'use = "nats", codec = "sonar"',
    ("sinks", "sonar"): 'use = "nats", codec = "sonar"',
}
"""Parts: group of entry points and name."""
