"""Markdown of a model as something to print: safe, without hidden link targets, code in colours."""

from typing import ClassVar

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.markdown import Heading, Markdown, MarkdownElement
from rich.text import Text

from retinue.ui.formats import clean

_MOST_CHARS = 200_000
"""Beyond this nobody reads a reply as a page; it is shown as it came."""


class _PlainHeading(Heading):
    """A heading where the text begins, told by its weight alone."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        text = self.text.copy()
        text.justify = "left"
        text.stylize("bold underline" if self.tag == "h1" else "bold")
        yield text


class _Page(Markdown):
    elements: ClassVar[dict[str, type[MarkdownElement]]] = {**Markdown.elements, "heading_open": _PlainHeading}


def render_markdown(text: str, *, code_theme: str = "ansi_dark") -> RenderableType:
    """The text as a page."""
    safe = clean(text)
    if len(safe) > _MOST_CHARS:
        return Text(safe)
    # Link targets are printed, never hidden behind words.
    return _Page(safe, code_theme=code_theme, hyperlinks=False)


def stack(*parts: RenderableType | None) -> RenderableType:
    """Several things one under the other."""
    return Group(*(part for part in parts if part is not None))
