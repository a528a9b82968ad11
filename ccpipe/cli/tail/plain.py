"""Plain command lines of ``tail`` without the library that parses the others.

Most of the time until the first line is imports: what people and scripts type all day is read
here. Whatever is not plain, a mistake or ``--help`` above all, is left to the command itself.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from ccpipe.cli.console.login import Login
from ccpipe.cli.tail.options import Kind, Options, Output

FLAGS: Mapping[str, tuple[str, bool]] = {
    "--all": ("all_", True),
    "--no-follow": ("follow", False),
    "--stats": ("stats", True),
    "--raw": ("raw", True),
    "--strict": ("strict", True),
    "--lenient": ("lenient", True),
}
"""Options without a value: the field, and what they set it to."""

LISTS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "--cluster": ("cluster", str),
    "--kind": ("kind", str),
    "--node": ("node", str),
    "--name": ("name", str),
    "--subject": ("subjects", str),
    "--job": ("job", int),
}
"""Options that may be repeated."""

VALUES: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "--last": ("last", str),
    "--since": ("since", str),
    "--count": ("count", int),
    "--for": ("for_", str),
    "--limit": ("limit", int),
    "--output": ("output", str),
    "-o": ("output", str),
}

LOGIN: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "--config": ("config", Path),
    "--server": ("server", str),
    "--user": ("user", str),
    "--password-file": ("password_file", Path),
    "--creds": ("creds", Path),
    "--context": ("context", str),
}
"""Those of ``Login``."""


def parse(words: Sequence[str]) -> Options | None:
    """Return the options of a plain command line; None for any other."""
    found: dict[str, Any] = {}
    rest = iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        if not word.startswith("-"):
            found.setdefault("subjects", []).append(word)
        elif word in FLAGS:
            field, is_set = FLAGS[word]
            if field in found:
                return None
            found[field] = is_set
        elif name in LISTS or name in VALUES or name in LOGIN:
            if name == "-o" and equals:
                return None
            value = value if equals else next(rest, "-")
            if value.startswith("-") or not _put(found, name, value):
                return None
        else:
            return None
    kinds_fit = set(found.get("kind", ())) <= set(get_args(Kind))
    if not kinds_fit or found.get("output", "table") not in get_args(Output):
        return None
    login = {field: found.pop(field) for field, _ in LOGIN.values() if field in found}
    return Options(**found, login=Login(**login))


def _put(found: dict[str, Any], name: str, text: str) -> bool:
    """Keep one value; false where it is not plain."""
    field, kind = LISTS.get(name) or LOGIN.get(name) or VALUES[name]
    if kind is int and not (text.isascii() and text.isdecimal()):
        return False
    if name in LISTS:
        found.setdefault(field, []).append(kind(text))
    elif field in found:
        return False
    else:
        found[field] = kind(text)
    return True


def run(words: Sequence[str]) -> bool:
    """Run ``tail`` where the words after it are plain; return whether they were."""
    options = parse(words)
    if options is None:
        return False
    from ccpipe.cli.tail.follow import follow

    asyncio.run(follow(options))
    return True
