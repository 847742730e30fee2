"""Markdown as a page: rich's, with headings of ours. Loaded with the first reply, since it is slow to load."""

from typing import ClassVar

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import Heading, Markdown, MarkdownElement


class PlainHeading(Heading):
    """A heading where the text begins, told by its weight alone."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        text = self.text.copy()
        text.justify = "left"
        text.stylize("bold underline" if self.tag == "h1" else "bold")
        yield text


class Page(Markdown):
    """A text of a model's."""

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {**Markdown.elements, "heading_open": PlainHeading}
