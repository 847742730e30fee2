"""Scrolling and searching in a conversation: by lines, pages, prompts and search results."""

from typing import Literal

from textual.geometry import Region

from retinue.ui.blocks import UserBlock
from retinue.ui.formats import clean_line
from retinue.ui.renderers.base import BlockView
from retinue.ui.widgets.conversation import Conversation

Way = Literal["scroll", "turn", "turn_half", "go_edge", "go_prompt"]
CONTEXT = 2
"""Rows that stay visible above a search result."""
FOUND = "-found"


class ConversationReader:
    """Scrolls and searches one conversation."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._needle = ""
        self._found: list[BlockView] = []
        self._at = -1

    def move(self, way: Way, step: int) -> None:
        """Call one of the next five methods, by its name in a key binding."""
        getattr(self, way)(step)

    def scroll(self, lines: int) -> None:
        """Scroll by lines; scrolling up stops following the end."""
        self._conversation.scroll_relative(y=lines, animate=False)

    def turn(self, step: int) -> None:
        """Scroll by a page."""
        conversation = self._conversation
        (conversation.scroll_page_up if step < 0 else conversation.scroll_page_down)(animate=False)

    def turn_half(self, step: int) -> None:
        """Scroll by half a page."""
        self.scroll(step * max(1, self._conversation.size.height // 2))

    def go_edge(self, step: int) -> None:
        """Go to the beginning, or to the end and follow it again."""
        if step < 0:
            self._conversation.show_beginning()
        else:
            self._conversation.anchor()

    def go_prompt(self, step: int) -> None:
        """Go to the previous or next user message; after the last one, to the end."""
        conversation = self._conversation
        top = conversation.scroll_offset.y
        prompts = [view for view in conversation.views if isinstance(view.block, UserBlock)]
        if step > 0:
            later = [view for view in prompts if view.virtual_region.y > top]
            if not later or top >= conversation.max_scroll_y:
                self.go_edge(1)
            else:
                self._show(later[0])
            return
        earlier = [view for view in prompts if view.virtual_region.y < top]
        if earlier:
            self._show(earlier[-1])
        elif conversation.load_earlier():
            conversation.call_after_refresh(self.go_prompt, step)
        else:
            self.go_edge(-1)

    def find(self, needle: str) -> str:
        """Start a search near the visible part; returns a message for the user."""
        self.forget()
        self._needle = needle
        self._found = self._conversation.find_views(needle)
        bottom = self._conversation.scroll_offset.y + self._conversation.size.height
        before = [at for at, view in enumerate(self._found) if view.virtual_region.y < bottom]
        self._at = before[-1] if before else 0
        return self.go_found(0)

    def go_found(self, step: int) -> str:
        """Go to the next or previous search result; returns a message for the user."""
        if not self._needle.strip():
            return "no search text"
        if not self._found or step:
            # There may be more results by now.
            self._found = self._conversation.find_views(self._needle) or []
        if not self._found:
            return f"not found: {clean_line(self._needle, 40)}"
        self._mark(is_found=False)
        self._at = (self._at + step) % len(self._found)
        view = self._found[self._at]
        self._mark(is_found=True)
        view.fold(is_open=True)
        self._show(view)
        self._conversation.call_after_refresh(self._show_row, view)
        return f"{self._at + 1} of {len(self._found)}"

    def forget(self) -> None:
        """End the search."""
        self._mark(is_found=False)
        self._needle, self._found, self._at = "", [], -1

    def _mark(self, *, is_found: bool) -> None:
        if 0 <= self._at < len(self._found):
            self._found[self._at].set_class(is_found, FOUND)

    def _show(self, view: BlockView) -> None:
        self._conversation.release_anchor()
        self._conversation.scroll_to_widget(view, animate=False, top=True)

    def _show_row(self, view: BlockView) -> None:
        """Scroll a long block to the row with the search words."""
        row = _find_row(view, self._needle) if view.is_mounted else 0
        if row > CONTEXT:
            self._conversation.scroll_to(y=view.virtual_region.y + row - CONTEXT, animate=False)


def _find_row(view: BlockView, needle: str) -> int:
    """The row of a view that contains the needle; 0 if no single row does."""
    needle = needle.lower()
    for widget in (view, *view.query("*")):
        if not widget.size:
            continue
        rows = widget.render_lines(Region(0, 0, widget.outer_size.width, widget.outer_size.height))
        for at, row in enumerate(rows):
            if needle in row.text.lower():
                return at + (widget.virtual_region.y if widget is not view else 0)
    return 0
