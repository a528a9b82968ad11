"""How large ccpipe is, as a table: ``python scripts/size.py [COMMIT]``.

Counts the lines of files under version control: of the work tree, or of a commit.
"""

import argparse
import ast
import io
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parent.parent
NATIVE = {".pyx", ".pxi", ".hpp"}
SMALL = 70
"""Files below this number of lines are counted: a file is a subject, not a function."""
NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


def sources(commit: str | None) -> Iterator[tuple[PurePosixPath, str]]:
    """Yield the files of the package and of its tests, with their text."""
    directories = ("--", "ccpipe", "tests")
    listed = ["ls-tree", "-r", "--name-only", commit] if commit else ["ls-files"]
    for name in git(*listed, *directories).splitlines():
        path = PurePosixPath(name)
        if path.suffix == ".py" or path.suffix in NATIVE:
            text = git("show", f"{commit}:{name}") if commit else (ROOT / name).read_text()
            yield path, text


def git(*arguments: str) -> str:
    """Return what git prints."""
    done = subprocess.run(  # noqa: S603 - no shell
        ["git", *arguments],  # noqa: S607 - the user's git
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def docstring_lines(text: str) -> set[int]:
    """Return the numbers of the lines of docstrings, also those below attributes."""
    return {
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


def code_lines(text: str) -> int:
    """Return the number of lines with code, which docstrings, comments and empty lines are not."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - docstring_lines(text))


def sizes(commit: str | None) -> dict[str, int]:
    """Return the rows of the table."""
    rows = dict.fromkeys(
        (
            "ccpipe/, all lines",
            "of these code in Python",
            "docstrings",
            "native",
            f"files of ccpipe/ under {SMALL} lines",
            "tests/, all lines",
        ),
        0,
    )
    total, code, docstrings, native, small, tests = rows
    for path, text in sources(commit):
        count = len(text.splitlines())
        if path.parts[0] == "tests":
            rows[tests] += count
            continue
        rows[total] += count
        if path.suffix in NATIVE:
            rows[native] += count
        else:
            rows[code] += code_lines(text)
            rows[docstrings] += len(docstring_lines(text))
            rows[small] += count < SMALL and path.name != "__init__.py"
    return rows


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit", nargs="?", help="default: the work tree")
    for name, count in sizes(parser.parse_args().commit).items():
        print(f"{count:8,}  {name}")


if __name__ == "__main__":
    main()
