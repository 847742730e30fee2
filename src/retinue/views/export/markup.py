"""Text of a model or a tool as HTML: all escaped, markdown without raw HTML, no link that runs anything. Pure."""

import html
from functools import cache
from typing import Any

from retinue.core.terminal import escape_text

_MOST_CHARS = 400_000


def escape(text: str) -> str:
    """Text that is only text, also in an attribute; control characters are shown, not sent."""
    return html.escape(escape_text(text), quote=True)


def render_prose(text: str) -> str:
    """Markdown as HTML."""
    if len(text) > _MOST_CHARS:
        return f"<pre>{escape(text)}</pre>"
    rendered: str = _open_renderer().render(escape_text(text))
    return rendered


def render_pre(text: str) -> str:
    """Text as it came."""
    return f"<pre>{escape(text)}</pre>" if text else ""


@cache
def _open_renderer() -> Any:
    from markdown_it import MarkdownIt

    # Raw HTML is shown as text; images would be fetched when somebody opens the page.
    renderer = MarkdownIt("commonmark", {"html": False, "linkify": False}).enable("table").disable("image")
    renderer.add_render_rule("link_open", _open_link)
    return renderer


def _open_link(renderer: Any, tokens: Any, index: int, options: Any, environment: Any) -> str:
    target = str(tokens[index].attrGet("href") or "")
    if not target.lower().startswith(("http://", "https://", "#", "mailto:")):
        return f'<a title="{escape(target)}">'
    return f'<a href="{escape(target)}" title="{escape(target)}" rel="noopener noreferrer nofollow">'
