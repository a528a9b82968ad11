"""How often idioms occur that an engineer would not write: ``python scripts/words.py [COMMIT]``.

Counts docstrings, comments, messages and names of tests in Python, and the text of pages. With
``--list IDIOM`` it prints each place of one.
"""

import argparse
import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from scripts.size import ROOT, git

IDIOMS = {
    "told, tells, said": r"\b(?:told|tells?|said)\b",
    "says": r"\bsays?\b",
    "heard": r"\bhea(?:rd|rs?)\b",
    "what … as subject": r"(?:^|[.;:] )What\b(?![^.;]*\?)|^test what\b|^test a?n? ?\w+ of what\b",
    "is no …": r"\b(?:is|are|was|were) no\b(?! longer| more)",
    "nobody, somebody, whoever": r"\b(?:nobody|somebody|whoever)\b",
    "costs": r"\bcosts?\b(?= (?:itself|only|nobody|one|a line|that|the|its|no))",
    "letter": r"(?<!dead.)(?<!dead )\bletters?\b(?! case)",
    "twin": r"\btwins?\b",
    "beside": r"\bbeside\b",
    "moment": r"\bmoments?\b",
    "holds": r"\bholds?\b",
    "that of, those of": r"\b(?:that|those) of\b",
    "comes, came": r"\b(?:comes?|came)\b",
    "of none, is none": r"\b(?:of|is|are|for) none\b",
    "stands": r"\bst(?:ands?|ood)\b",
    "asks": r"\bask(?:s|ed)?\b",
    "room": r"\brooms?\b",
    "gone, away": r"\b(?:gone|away)\b",
    "folder": r"\bfolders?\b",
    "card": r"\bcards?\b",
    "lake": r"\blakes?\b",
    "power cut": r"\bpower cuts?\b",
}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
TOPS = ("ccpipe", "tests", "pages")
PAGES = ("docs", "bridges", "README.md", "CHANGELOG.md", "CONTRIBUTING.md")


def python_texts(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of each docstring, comment, message and test's name."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, node.value
        elif isinstance(node, FUNCTIONS) and node.name.startswith("test_"):
            yield node.lineno, node.name.replace("_", " ")
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("# ")


def page_texts(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of a page, but for its blocks of code."""
    is_code = False
    for number, line in enumerate(source.splitlines(), 1):
        if line.lstrip().startswith("```"):
            is_code = not is_code
        elif not is_code:
            yield number, re.sub(r"`[^`]*`", "", line)


def texts(commit: str | None, below: str) -> Iterator[tuple[str, str, int, str]]:
    """Yield top level, path, line and text of all that is read."""
    listed = ["ls-tree", "-r", "--name-only", commit] if commit else ["ls-files"]
    for name in git(*listed, "--", "ccpipe", "tests", *PAGES).splitlines():
        is_page = name.endswith(".md") and not name.startswith("tests")
        if not (is_page or name.endswith(".py")) or not name.startswith(below):
            continue
        top = "pages" if is_page else name.partition("/")[0]
        if top not in TOPS:
            continue
        source = git("show", f"{commit}:{name}") if commit else (ROOT / name).read_text()
        for line, text in (page_texts if is_page else python_texts)(source):
            yield top, name, line, text


def main() -> None:
    """Print the table, or the places of one idiom."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit", nargs="?", help="default: the work tree")
    parser.add_argument("--list", metavar="IDIOM", help="print its places; 'all' for each idiom")
    parser.add_argument("--below", default="", metavar="PATH", help="only what is below it")
    options = parser.parse_args()
    patterns = {
        name: re.compile(rule, re.IGNORECASE | re.MULTILINE) for name, rule in IDIOMS.items()
    }
    counts = {name: dict.fromkeys(TOPS, 0) for name in IDIOMS}
    for top, path, line, text in texts(options.commit, options.below):
        for name, pattern in patterns.items():
            found = len(pattern.findall(text))
            counts[name][top] += found
            if found and options.list in {name, "all"}:
                print(f"{path}:{line}: [{name}] {' '.join(text.split())[:300]}")
    if options.list:
        return
    print(f"{'ccpipe':>8}{'tests':>8}{'pages':>8}")
    for name, row in counts.items():
        print("".join(f"{count:8}" for count in row.values()), name, sep="  ")
    totals = [sum(row[top] for row in counts.values()) for top in TOPS]
    print("".join(f"{total:8}" for total in totals), "all", sep="  ")


if __name__ == "__main__":
    main()
