"""The tree of tests: each module has its test file, each test file its module or its reason."""

from collections import Counter
from collections.abc import Iterator
from pathlib import PurePosixPath

from tests.paths import ROOT

WITHOUT_TESTS = {
    "__main__.py": "calls `main`, which tests run as a command",
    "pipeline/limits.py": "settings alone; the tests of the pipe set them",
    "accounting/scheduler.py": "a type alone",
    "sinks/parquet/schema.py": "a schema alone; the tests of tables compare with it",
}
"""Modules that hold nothing to test."""

OF_NO_MODULE = {
    "bridges": "the shipped recipes, in `bridges/`, with the real programs",
    "chaos": "faults in a whole pipe",
    "deployment": "what is shipped beside the package: nats.conf, containers, units, dashboards",
    "e2e": "several rooms together",
    "pages": "the documentation",
    "scripts": "the scripts, in `scripts/`",
    "slurm": "a real Slurm",
    "test_imports.py": "the import contracts",
    "test_names.py": "names: one for one thing",
    "test_mirror.py": "this",
}
"""Folders and files of tests, below ``tests/``, that are about no one module."""

MAX_FILES = 20
"""Python files in one folder, beside ``__init__.py`` and ``conftest.py``; pages in one of docs."""


def modules() -> Iterator[PurePosixPath]:
    """Yield modules and kernels, by their paths in the package; of packages those with code."""
    package = ROOT / "ccpipe"
    for path in sorted([*package.rglob("*.py"), *package.rglob("*.pyx")]):
        if (
            path.name != "__init__.py"
            or "\ndef " in path.read_text()
            or "\nclass " in path.read_text()
        ):
            yield PurePosixPath(path.relative_to(package))


def files() -> Iterator[PurePosixPath]:
    """Yield test files by their paths in the folder of tests."""
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        yield PurePosixPath(path.relative_to(ROOT / "tests"))


def name_of(module: PurePosixPath) -> PurePosixPath:
    """Return where the tests of a module are: of a package in ``test_package.py``."""
    stem = "package" if module.name == "__init__.py" else module.stem.strip("_")
    return module.with_name(f"test_{stem}.py")


def is_of_a_module(test: PurePosixPath, known: set[PurePosixPath]) -> bool:
    """Return whether a test file names a module of its folder, maybe with what it is about.

    ``test_pipe.py`` and ``test_pipe_failures.py`` are both of ``pipe.py``; ``test_package.py`` is
    of what the modules of a package have in common.
    """
    words = test.stem.split("_")
    names = {test.with_name("_".join(words[:end]) + ".py") for end in range(2, len(words) + 1)}
    return bool(names & known) or (
        test.name == "test_package.py" and (ROOT / "ccpipe" / test.parent).is_dir()
    )


def test_each_module_has_a_test_file_of_its_name() -> None:
    """Whoever changes a module finds its tests without a search."""
    missing = [
        f"{module}: tests/{name_of(module)}"
        for module in modules()
        if (ROOT / "tests" / name_of(module)).is_file() == (str(module) in WITHOUT_TESTS)
    ]
    assert missing == []


def test_each_test_file_has_a_module_or_a_reason() -> None:
    """And whoever reads a test finds what it is about."""
    known = {name_of(module) for module in modules()}
    stray = [
        str(test)
        for test in files()
        if is_of_a_module(test, known) == (test.parts[0] in OF_NO_MODULE)
    ]
    assert stray == []


def test_no_folder_is_long() -> None:
    """A folder that outgrows one look gets sub-folders by what its files are about."""
    patterns = [f"{top}/**/*.py" for top in ("ccpipe", "tests", "benchmarks", "scripts")]
    folders = Counter(
        path.parent
        for pattern in [*patterns, "docs/**/*.md"]
        for path in ROOT.glob(pattern)
        if path.name not in ("__init__.py", "conftest.py")
    )
    long = {str(folder): count for folder, count in folders.items() if count > MAX_FILES}
    assert not long


def test_no_reason_outlives_its_module() -> None:
    """An exemption of what is gone would hide a later one of the same name."""
    assert [name for name in WITHOUT_TESTS if not (ROOT / "ccpipe" / name).is_file()] == []
    assert [name for name in OF_NO_MODULE if not (ROOT / "tests" / name).exists()] == []


def test_a_test_file_names_its_module_from_the_beginning() -> None:
    """The rule itself, on made names."""
    known = {PurePosixPath("pipeline/test_pipe.py")}
    assert is_of_a_module(PurePosixPath("pipeline/test_pipe.py"), known)
    assert is_of_a_module(PurePosixPath("pipeline/test_pipe_failures.py"), known)
    assert not is_of_a_module(PurePosixPath("pipeline/test_pipes.py"), known)
    assert not is_of_a_module(PurePosixPath("jobs/test_pipe.py"), known)
