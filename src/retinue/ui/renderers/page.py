"""Markdown as a page: rich's, in our colours and without its empty lines. Slow to load, so it comes with the first."""

from collections.abc import Mapping
from typing import ClassVar

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown, MarkdownElement, TableElement
from rich.syntax import Syntax
from rich.table import Table
from rich.theme import Theme


class PlainHeading(Heading):
    """A heading where the text begins, told by its weight alone."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        text = self.text.copy()
        text.justify = "left"
        text.stylize("bold underline" if self.tag == "h1" else "bold")
        yield text


class PlainCode(CodeBlock):
    """Code that stands in, with no lines lost above and below."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = str(self.text).rstrip()
        yield Syntax(code, self.lexer_name, theme=self.theme, word_wrap=True, padding=(0, 2))


class PlainTable(TableElement):
    """A table with a line below its head and none around it."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for made in super().__rich_console__(console, options):
            if isinstance(made, Table):
                made.box, made.show_edge, made.pad_edge = box.SIMPLE_HEAD, False, False
            yield made


class MarkdownPage(Markdown):
    """A text of a model's."""

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": PlainHeading,
        "fence": PlainCode,
        "code_block": PlainCode,
        "table_open": PlainTable,
    }

    def __init__(self, markup: str, *, code_theme: str, colors: Mapping[str, str]) -> None:
        # Link targets are printed, never hidden behind words.
        super().__init__(markup, code_theme=code_theme, hyperlinks=False)
        self._theme = _make_theme(colors)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        with console.use_theme(self._theme):
            yield from super().__rich_console__(console, options)


def _make_theme(colors: Mapping[str, str]) -> Theme:
    """Words in the colours of the program; rich's own are made for black."""
    primary, secondary = colors.get("primary", ""), colors.get("secondary", "")
    plain = {f"markdown.h{level}": "bold" for level in range(1, 7)}
    styles = {
        **plain,
        "markdown.code": primary,
        "markdown.code_block": primary,
        "markdown.block_quote": f"italic {secondary}",
        "markdown.list": secondary,
        "markdown.item.bullet": secondary,
        "markdown.item.number": secondary,
        "markdown.hr": "dim",
        "markdown.link": primary,
        "markdown.link_url": primary,
        "markdown.table.border": "dim",
        "markdown.table.header": "bold",
        "markdown.kbd": "bold",
    }
    return Theme({name: style.strip() or "none" for name, style in styles.items()})
