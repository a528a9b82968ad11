"""The error tree."""

import inspect
import re

import pytest

from ccpipe import errors

CLASSES = [
    cls
    for _, cls in inspect.getmembers(errors, inspect.isclass)
    if cls.__module__ == errors.__name__
]


def drawn() -> dict[str, tuple[str, int | None]]:
    assert errors.__doc__
    parents: dict[int, str] = {}
    found: dict[str, tuple[str, int | None]] = {}
    pattern = r"^    ([│├└─ ]*)(\w+)(?: .*?)?(?:exit (\d+))?$"
    for branch, name, code in re.findall(pattern, errors.__doc__, re.MULTILINE):
        parents[len(branch)] = name
        parent = parents[len(branch) - 4] if branch else "Exception"
        found[name] = (parent, int(code) if code else None)
    return found


def test_docstring_shows_tree_of_errors() -> None:
    real = {cls.__name__: cls.__bases__[0].__name__ for cls in CLASSES}
    assert {name: parent for name, (parent, _) in drawn().items()} == real


@pytest.mark.parametrize(("name", "code"), [(n, c) for n, (_, c) in drawn().items() if c])
def test_exit_codes_equal_those_in_docstring(name: str, code: int) -> None:
    """And are codes of ``sysexits.h``."""
    assert getattr(errors, name).exit_code == code
    assert 64 <= code <= 78


@pytest.mark.parametrize("cls", CLASSES)
def test_exit_codes_of_errors_are_failures(cls: type[errors.CcpipeError]) -> None:
    """Not 0, nor a code that a shell or Python itself uses."""
    assert 64 <= cls.exit_code <= 78


def test_missing_extra_has_pip_command() -> None:
    """With the extra that installs the library."""
    error = errors.MissingExtra("pyarrow", "parquet")
    assert str(error) == "pyarrow is not installed; type: pip install 'ccpipe[parquet]'"
    assert (error.library, error.extra) == ("pyarrow", "parquet")


def test_rejection_has_text_of_store_and_indices() -> None:
    """Without indices it is unknown which records are meant; an empty list would mean none."""
    assert str(errors.RejectedError("out of order")) == "out of order"
    assert errors.RejectedError("x").indices is None
    assert errors.RejectedError("x", [1, 2]).indices == [1, 2]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ConnectionRefusedError(111, "Connect call failed ('127.0.0.1', 1)"), "Connection refused"),
        (
            OSError(98, "error while attempting to bind on address ('127.0.0.1', 1): ..."),
            "Address already in use",
        ),
        (OSError(-2, "Name or service not known"), "Name or service not known"),
        (OSError("Multiple exceptions: a, b"), "Multiple exceptions: a, b"),
        (TimeoutError(), "TimeoutError"),
    ],
)
def test_reason_of_system_has_no_number_or_path(error: OSError, expected: str) -> None:
    assert errors.system_reason(error) == expected
