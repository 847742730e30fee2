"""Markdown of a model as something to print: safe, without hidden link targets, code in colours."""

from rich.console import Group, RenderableType
from rich.text import Text

from retinue.ui.formats import clean

_MOST_CHARS = 200_000
"""Beyond this nobody reads a reply as a page; it is shown as it came."""


def render_markdown(text: str, *, code_theme: str = "ansi_dark") -> RenderableType:
    """The text as a page."""
    safe = clean(text)
    if len(safe) > _MOST_CHARS:
        return Text(safe)
    from retinue.ui.views.page import Page

    # Link targets are printed, never hidden behind words.
    return Page(safe, code_theme=code_theme, hyperlinks=False)


def stack(*parts: RenderableType | None) -> RenderableType:
    """Several things one under the other."""
    return Group(*(part for part in parts if part is not None))
