"""The conversation: a window of views on its blocks, which follows the end until the user scrolls away.

A block gets a view when the user scrolls near it and loses it when far away: a session of many thousand lines opens as
fast as a short one, and its beginning is reached as quickly as its end.
"""

from itertools import takewhile

from textual.containers import VerticalScroll
from textual.widgets import Static

from retinue.core.figures import count_noun
from retinue.ui import blocks
from retinue.ui.blocks import Block, ReplyBlock, ToolBlock
from retinue.ui.conversation_blocks import ConversationBlocks
from retinue.ui.renderers.base import BlockView, CommandView, NoteView, SummaryView, UserView
from retinue.ui.renderers.reply import ReplyView
from retinue.ui.renderers.report import ReportView
from retinue.ui.renderers.tool import ToolView

PAGE = 60
"""Blocks that get a view at a time when the user scrolls up."""
SPARE = 6
"""Extra blocks above the first screen."""
SEARCHED = 20
"""Maximum number of pages that a search loads."""
MOST = 240
"""Maximum number of views, except in a search."""

_VIEWS: dict[type[Block], type[BlockView]] = {
    blocks.UserBlock: UserView,
    blocks.ReplyBlock: ReplyView,
    blocks.ToolBlock: ToolView,
    blocks.NoteBlock: NoteView,
    blocks.ReportBlock: ReportView,
    blocks.CommandBlock: CommandView,
    blocks.SummaryBlock: SummaryView,
}


class Conversation(VerticalScroll, can_focus=False):
    """Shows ConversationBlocks; `sync` updates it and costs only what has changed. A click never takes the keys."""

    FOCUS_ON_CLICK = False

    DEFAULT_CSS = """
    Conversation { height: 1fr; width: 1fr; padding: 0 1; scrollbar-size-vertical: 1; }
    Conversation > .more { color: $text-muted; text-style: italic; height: 1; display: none; }
    Conversation.-has-earlier > #earlier, Conversation.-has-later > #later { display: block; }
    """

    def __init__(self, talk: ConversationBlocks, *, id: str | None = None) -> None:
        edges = [Static("", id=name, classes="more", markup=False) for name in ("earlier", "later")]
        super().__init__(*edges, id=id)
        self.talk = talk
        self.views: list[BlockView] = []
        """The current views, top to bottom."""
        self._first = self._find_first(talk)
        self._synced = -1
        self._outcomes = 0
        self._is_away = False
        """Whether there are blocks after the last view; they get views when the user scrolls near."""
        self._all_open = False
        self._thinking_open = False
        self._seen: Block | None = None
        """The last block when the user was at the end."""

    def on_mount(self) -> None:
        self.app.theme_changed_signal.subscribe(self, lambda theme: self.redraw())
        self.sync()
        self.anchor()

    def redraw(self) -> None:
        """Redraw all views because the theme has changed."""
        for view in self.views:
            view.redraw()

    def show(self, talk: ConversationBlocks) -> None:
        """Show the end of another conversation."""
        self.talk = talk
        self._open_window(self._find_first(talk), len(talk.blocks))
        self.anchor()

    def show_beginning(self) -> None:
        """Scroll to the first block."""
        if self._has_earlier:
            self.talk.recall(len(self.talk.unread))
            self._open_window(0, PAGE)
        self.release_anchor()
        self.call_after_refresh(self.scroll_home, animate=False)

    def anchor(self, anchor: bool = True) -> None:
        """Scroll to the end and follow it."""
        if anchor and self._is_away:
            self._open_window(self._find_first(self.talk), len(self.talk.blocks))
        super().anchor(anchor)

    def _open_window(self, first: int, end: int) -> None:
        """Replace all views."""
        for view in self.views:
            view.remove()
        self.views, self._first, self._synced = [], first, -1
        self._add_later(end)
        self.sync()

    def sync(self) -> None:
        """Update the views from the talk."""
        if self._synced == self.talk.version or not self.is_mounted:
            return
        self._synced = self.talk.version
        if self._anchor_released and not self.max_scroll_y and not self._is_away:
            super().anchor()  # the wheel was turned where there was nothing to scroll
        # Only recent blocks can change, because a batch of calls may finish in any order, and calls of agents.
        is_far, self._outcomes = self._outcomes != self.talk.outcomes, self.talk.outcomes
        for view in self.views if is_far else self.views[-PAGE:]:
            view.sync()
        if not self._is_away and self._add_later(len(self.talk.blocks)):
            self._trim()
        self._tell_earlier()

    def count_unseen(self) -> int:
        """The number of messages that were added since the user scrolled up; 0 at the end."""
        talked = self.talk.blocks
        if not self._is_away and (self.is_vertical_scroll_end or not self._anchor_released):
            self._seen = talked[-1] if talked else None
            return 0
        fresh = takewhile(lambda block: block is not self._seen, reversed(talked))
        return sum(not isinstance(block, ToolBlock) for block in fresh)

    def open_all(self, *, is_open: bool | None = None) -> None:
        """Expand or collapse all blocks."""
        self._all_open = (not self._all_open) if is_open is None else is_open
        for view in self.views:
            view.fold(is_open=self._all_open)

    def open_thinking(self) -> None:
        """Expand or collapse thinking."""
        self._thinking_open = not self._thinking_open
        for view in self.views:
            if isinstance(view.block, ReplyBlock):
                view.fold(is_open=self._thinking_open)

    def find_views(self, needle: str) -> list[BlockView]:
        """The views whose blocks contain the needle, ignoring case; earlier blocks get views for this."""
        if not needle.strip():
            return []
        if self._is_away:
            self.anchor()
        self._first += self.talk.recall(len(self.talk.unread)) if self.talk.unread else 0
        for _ in range(SEARCHED):
            if not any(_has(block, needle) for block in self.talk.blocks[: self._first]):
                break
            self.load_earlier(most=len(self.talk.blocks))
        return [view for view in self.views if _has(view.block, needle)]

    def load_earlier(self, most: int | None = None) -> bool:
        """Create views for the blocks before the first view; returns whether there were any."""
        most = MOST if most is None else most
        if self._first == 0 and self.talk.unread:
            self._first = self.talk.recall()
        first = max(0, self._first - PAGE)
        if first == self._first:
            return False
        fresh = [self._open_view(block) for block in self.talk.blocks[first : self._first]]
        anchor = self.views[0] if self.views else None
        self.views[:0] = fresh
        self._first = first
        self.release_anchor()
        self.mount(*fresh, after=0)
        for view in self.views[most:]:
            view.remove()
        self._set_away(is_away=self._is_away or len(self.views) > most)
        del self.views[most:]
        self._tell_earlier()
        if anchor is not None:
            self.call_after_refresh(self.scroll_to_widget, anchor, animate=False, top=True)
        return True

    async def load_later(self) -> None:
        """Create views for the blocks after the last view."""
        last = self.views[-1] if self.views else None
        self._add_later(self._first + len(self.views) + PAGE)
        surplus = max(0, len(self.views) - MOST)
        gone = self.views[:surplus]
        del self.views[:surplus]
        self._first += surplus
        self._tell_earlier()
        # Removing views moves the end up. Without waiting, a reader at the end would not trigger the next load.
        await self.remove_children(gone)
        if last is not None:
            self.call_after_refresh(self._show_more, last)

    def _show_more(self, last: BlockView) -> None:
        """Scroll to the last old view; if all new ones are visible too, load more."""
        if last.is_attached:
            self.scroll_to_widget(last, animate=False)
        if self._is_away and self.scroll_y >= self.max_scroll_y:
            self.call_later(self.load_later)

    def _add_later(self, end: int) -> bool:
        """Create views below the existing ones up to block `end`; returns whether there were any."""
        known, blocks = self._first + len(self.views), self.talk.blocks
        fresh = [self._open_view(block) for block in blocks[known:end]] if self.is_mounted else []
        if fresh:
            self.views += fresh
            self.mount(*fresh, before="#later")
        self._set_away(is_away=self._first + len(self.views) < len(blocks) and self.is_mounted)
        return bool(fresh)

    def _set_away(self, *, is_away: bool) -> None:
        self._is_away = is_away
        # Textual moves an anchored widget to its end without a call of watch_scroll_y, so nothing more would be loaded.
        self._anchored = not is_away
        if is_away:
            self.release_anchor()

    def watch_scroll_y(self, old: float, new: float) -> None:
        """Load more at the top and at the bottom."""
        super().watch_scroll_y(old, new)
        if new <= 0 < old and self._has_earlier:
            self.call_later(self.load_earlier)
        elif old < new >= self.max_scroll_y and self._is_away:
            self.call_later(self.load_later)

    def on_resize(self) -> None:
        """A higher screen has room for more blocks."""
        if self._has_earlier and self.views and not self.max_scroll_y:
            self.call_later(self.load_earlier)

    def _find_first(self, talk: ConversationBlocks) -> int:
        """The first block that gets a view: a little more than a screen, since each block takes at least two rows."""
        return max(0, len(talk.blocks) - min(PAGE, self.size.height // 2 + SPARE))

    def _open_view(self, block: Block) -> BlockView:
        is_open = self._all_open or (self._thinking_open and isinstance(block, ReplyBlock))
        return _VIEWS[type(block)](block, is_open=is_open)

    def _trim(self) -> None:
        """While following the end, remove views far above."""
        surplus = len(self.views) - MOST
        if surplus > PAGE and self.is_vertical_scroll_end and not self._is_away:
            for view in self.views[:surplus]:
                view.remove()
            del self.views[:surplus]
            self._first += surplus

    @property
    def _has_earlier(self) -> bool:
        return self._first > 0 or bool(self.talk.unread) or not self.talk.is_whole

    def _tell_earlier(self) -> None:
        later = len(self.talk.blocks) - self._first - len(self.views)
        self.set_class(self._is_away, "-has-later")
        self.query_one("#later", Static).update(f"↓ {later} later")
        self.set_class(self._has_earlier, "-has-earlier")
        if not self._has_earlier:
            return
        count = self._first + len(self.talk.unread)
        words = f"↑ {count} earlier" if self.talk.is_whole else "↑ loading earlier messages"
        self.query_one("#earlier", Static).update(words)
        if not self._first and self.talk.unread and self.max_scroll_y and self.scroll_y <= 0:
            self.call_later(self.load_earlier)  # the user was waiting at the top


class UnseenLine(Static):
    """Says how many messages are below the visible part; a click goes there."""

    DEFAULT_CSS = """
    UnseenLine { height: 1; padding: 0 2; display: none; color: $accent; text-wrap: nowrap; text-overflow: ellipsis; }
    UnseenLine.-some { display: block; }
    """

    def __init__(self, conversation: Conversation, *, id: str | None = None) -> None:
        super().__init__(id=id, markup=False)
        self._conversation = conversation
        self._shown = 0

    def show(self, key: str) -> None:
        """Show the present number; `key` goes to the end."""
        count = self._conversation.count_unseen()
        if count != self._shown:
            self._shown = count
            self.set_class(count > 0, "-some")
            self.update(" · ".join(filter(None, (f"↓ {count_noun(count, 'new message')}", key))))

    def on_click(self) -> None:
        self._conversation.anchor()


def _has(block: Block, needle: str) -> bool:
    if block.is_hidden:
        return False
    texts = (getattr(block, name, "") for name in ("text", "output", "thinking", "command", "summary"))
    return any(needle.lower() in text.lower() for text in texts if isinstance(text, str))
