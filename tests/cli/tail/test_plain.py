"""The plain parser and the command's own read the same command lines alike."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.cli.app import app
from ccpipe.cli.console.command_table import command as known_command
from ccpipe.cli.tail import command
from ccpipe.cli.tail.options import Options
from ccpipe.cli.tail.plain import parse

TAIL = known_command("tail")
assert TAIL is not None
FLAGS = [name for option in TAIL.options if not option.value for name in option.names]
LISTS = [option.names[0] for option in TAIL.options if option.value.endswith("...")]
VALUES = [n for o in TAIL.options if o.value and not o.value.endswith("...") for n in o.names]
SAMPLES = {
    "--kind": ("metric", "sonar", "dead"),
    "--output": ("json", "line"),
    "-o": ("csv",),
    "--job": ("1", "4711"),
    "--count": ("3",),
    "--limit": ("0", "7"),
}


def as_the_command_reads_it(words: list[str]) -> Options:
    """Parse by the command's signature, and take the options that it would show with."""
    function, bound, _ = app.parse_args(["tail", *words], exit_on_error=False, print_error=False)
    seen: list[Options] = []

    async def keep(options: Options) -> None:
        seen.append(options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(command, "show", keep)
        coroutine: Any = function(*bound.args, **bound.kwargs)
        with pytest.raises(StopIteration):
            coroutine.send(None)
    return seen[0]


def words_of(name: str) -> st.SearchStrategy[list[str]]:
    """Draw one option with a value."""
    values = st.sampled_from(SAMPLES.get(name, ("a", "f1*", "10s", "x.y")))
    joined = values.map(lambda value: [f"{name}={value}"])
    apart = values.map(lambda value: [name, value])
    return apart if name == "-o" else apart | joined


LINES = st.tuples(
    st.lists(st.sampled_from(["a.>", "b.metrics", "c"]).map(lambda word: [word]), max_size=2),
    st.lists(
        st.sampled_from(sorted(FLAGS)).map(lambda word: [word]),
        max_size=3,
        unique_by=lambda words: words[0].replace("--no-", "--"),
    ),
    st.lists(st.sampled_from(sorted(LISTS)).flatmap(words_of), max_size=4),
    st.lists(st.sampled_from(sorted(VALUES)), max_size=3, unique=True).flatmap(
        lambda names: st.tuples(*map(words_of, names)).map(list)
    ),
).map(lambda groups: [word for group in groups for words in group for word in words])


@given(LINES)
def test_both_read_the_same(words: list[str]) -> None:
    """Whatever is read without the library means what the command's help says."""
    plain = parse(words)
    if {"-o", "--output"} <= {word.partition("=")[0] for word in words}:
        assert plain is None
        return
    assert plain is not None
    own = as_the_command_reads_it(words)
    assert sorted(plain.subjects) == sorted(own.subjects)
    assert msgspec.structs.replace(plain, subjects=own.subjects) == own


@pytest.mark.parametrize(
    "line", ["--help", "--bogus", "--count x", "--count", "--limit -1", "--kind foo", "-ojson",
             "--count 1 --count 2", "-o xml", "--subject", "--", "-o=json"],
)  # fmt: skip
def test_what_is_not_plain_is_left_to_the_command(line: str) -> None:
    """Mistakes are told by one parser only."""
    assert parse(line.split()) is None
