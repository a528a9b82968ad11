"""``--help``: the library's, with texts that fill the screen's lines."""

from typing import TYPE_CHECKING, Any

from attrs import evolve
from cyclopts.help import DefaultFormatter, InlineText

if TYPE_CHECKING:
    from cyclopts.help import HelpEntry, HelpPanel
    from rich.console import Console, ConsoleOptions

EXAMPLES = "Examples:"


class HelpFormatter(DefaultFormatter):
    """Joins the lines of a docstring's paragraphs, and leaves out defaults that say nothing."""

    def __call__(self, console: "Console", options: "ConsoleOptions", panel: "HelpPanel") -> None:
        """Print a panel of options, arguments or commands."""
        super().__call__(console, options, panel.copy(entries=[_tidy(e) for e in panel.entries]))

    def render_description(
        self,
        console: "Console",
        options: "ConsoleOptions",  # noqa: ARG002 - as the library calls it
        description: Any,
    ) -> None:
        """Print what a command does."""
        paragraphs = _plain(description).strip().split("\n\n")
        text = "\n\n".join(map(_reflow, paragraphs))
        console.print(text, end="\n\n", markup=False, highlight=False)


def _reflow(paragraph: str) -> str:
    """Join lines; examples stay apart, each on a line of its own."""
    if not paragraph.startswith(EXAMPLES):
        return " ".join(paragraph.split())
    lines = paragraph.removeprefix(EXAMPLES).strip().splitlines()
    return "\n".join([EXAMPLES, *(f"  {line.strip()}" for line in lines)])


def _tidy(entry: "HelpEntry") -> "HelpEntry":
    entry = evolve(entry, description=" ".join(_plain(entry.description).split()))
    if entry.default in (False, "False"):  # a flag that is not set
        return evolve(entry, default=None, negative_names=(), negative_shorts=())
    return entry


def _plain(text: Any) -> str:
    if isinstance(text, InlineText):
        text = text.primary_renderable
    return "" if text is None else str(text)
