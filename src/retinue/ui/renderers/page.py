"""Markdown for rich in our colours and without its empty lines. Slow to import, so it is loaded on first use."""

from collections.abc import Mapping
from typing import ClassVar

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown, MarkdownElement, TableElement
from rich.syntax import Syntax
from rich.table import Table
from rich.theme import Theme


class PlainHeading(Heading):
    """A left-aligned heading in bold."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        text = self.text.copy()
        text.justify = "left"
        text.stylize("bold underline" if self.tag == "h1" else "bold")
        yield text


class PlainCode(CodeBlock):
    """An indented code block without empty lines around it."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = str(self.text).rstrip()
        yield Syntax(code, self.lexer_name, theme=self.theme, word_wrap=True, padding=(0, 2))


class PlainTable(TableElement):
    """A table with a line below its head and no border."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for made in super().__rich_console__(console, options):
            if isinstance(made, Table):
                made.box, made.show_edge, made.pad_edge = box.SIMPLE_HEAD, False, False
            yield made


class MarkdownPage(Markdown):
    """A Markdown text written by a model."""

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": PlainHeading,
        "fence": PlainCode,
        "code_block": PlainCode,
        "table_open": PlainTable,
    }

    def __init__(self, markup: str, *, code_theme: str, colors: Mapping[str, str]) -> None:
        # Link targets are printed, never hidden behind the link text.
        super().__init__(markup, code_theme=code_theme, hyperlinks=False)
        self._theme = _make_theme(colors)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        with console.use_theme(self._theme):
            yield from super().__rich_console__(console, options)


def _make_theme(colors: Mapping[str, str]) -> Theme:
    """Use the colours of our theme; rich's defaults are made for a black background."""
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
