"""Renders Markdown of a model for the terminal: escaped, with visible link targets and highlighted code."""

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from retinue.ui.formats import clean

if TYPE_CHECKING:
    from retinue.ui.app import RetinueApp

_MOST_CHARS = 200_000
"""Longer texts are shown as plain text."""


def render_markdown(text: str, app: "RetinueApp") -> RenderableType:
    """Render Markdown in the colours of the theme."""
    safe = clean(text)
    if len(safe) > _MOST_CHARS:
        return Text(safe)
    from retinue.ui.renderers.page import MarkdownPage

    code_theme = "ansi_dark" if app.current_theme.dark else "ansi_light"
    return MarkdownPage(safe, code_theme=code_theme, colors=app.theme_variables)


def stack(*parts: RenderableType | None) -> RenderableType:
    """Put several renderables below each other."""
    return Group(*(part for part in parts if part is not None))
