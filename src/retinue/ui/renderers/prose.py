"""Markdown of a model as something to print: safe, without hidden link targets, code in colours."""

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from retinue.ui.formats import clean

if TYPE_CHECKING:
    from retinue.ui.app import RetinueApp

_MOST_CHARS = 200_000
"""Beyond this nobody reads a reply as a page; it is shown as it came."""


def render_markdown(text: str, app: "RetinueApp") -> RenderableType:
    """The text as a page, in the colours of the program."""
    safe = clean(text)
    if len(safe) > _MOST_CHARS:
        return Text(safe)
    from retinue.ui.renderers.page import MarkdownPage

    code_theme = "ansi_dark" if app.current_theme.dark else "ansi_light"
    return MarkdownPage(safe, code_theme=code_theme, colors=app.theme_variables)


def stack(*parts: RenderableType | None) -> RenderableType:
    """Several things one under the other."""
    return Group(*(part for part in parts if part is not None))
