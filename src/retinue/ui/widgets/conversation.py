"""The conversation: a window of views on its blocks, following the end until somebody scrolls away.

Blocks get a view when somebody scrolls near them and lose it far from there: a session of many thousand lines opens as
fast as a short one, and its beginning is as near as its end.
"""

from collections.abc import Sequence

from textual.containers import VerticalScroll
from textual.widgets import Static

from retinue.ui.blocks import Block, ReplyBlock
from retinue.ui.renderers.base import BlockView
from retinue.ui.renderers.registry import open_view
from retinue.ui.talk import Talk

PAGE = 60
"""Blocks that get a view at once when somebody scrolls up."""
SPARE = 6
"""Blocks above the first screen."""
SEARCHED = 20
"""Pages that a search goes back at a time."""
MOST = 240
"""Views there are at most, unless somebody searches."""


class Conversation(VerticalScroll):
    """Shows a Talk; `sync` brings it up to date and costs only what has changed."""

    DEFAULT_CSS = """
    Conversation { height: 1fr; width: 1fr; padding: 0 1; scrollbar-size-vertical: 1; }
    Conversation > .more { color: $text-muted; text-style: italic; height: 1; display: none; }
    Conversation.-has-earlier > #earlier, Conversation.-has-later > #later { display: block; }
    """

    def __init__(self, talk: Talk, *, id: str | None = None) -> None:
        edges = [Static("", id=name, classes="more", markup=False) for name in ("earlier", "later")]
        super().__init__(*edges, id=id)
        self._talk = talk
        self._views: list[BlockView] = []
        self._first = self._find_first(talk)
        self._synced = -1
        self._is_away = False
        """Whether there are blocks after the last view, which get none until somebody comes near."""
        self._all_open = False
        self._thinking_open = False

    @property
    def talk(self) -> Talk:
        """What is shown."""
        return self._talk

    @property
    def views(self) -> Sequence[BlockView]:
        """Those there are, from the top down."""
        return self._views

    def on_mount(self) -> None:
        """Show the end."""
        self.app.theme_changed_signal.subscribe(self, lambda theme: self.redraw())
        self.sync()
        self.anchor()

    def redraw(self) -> None:
        """Draw everything again: the colours have changed."""
        for view in self._views:
            view.redraw()

    def show(self, talk: Talk) -> None:
        """Show another conversation from its end."""
        self._talk = talk
        self._open_window(self._find_first(talk), len(talk.blocks))
        self.anchor()

    def show_beginning(self) -> None:
        """Go to the first block of all."""
        if self._has_earlier:
            self._talk.recall(len(self._talk.unread))
            self._open_window(0, PAGE)
        self.release_anchor()
        self.call_after_refresh(self.scroll_home, animate=False)

    def anchor(self, anchor: bool = True) -> None:
        """Go to the end and follow it."""
        if anchor and self._is_away:
            self._open_window(self._find_first(self._talk), len(self._talk.blocks))
        super().anchor(anchor)

    def _open_window(self, first: int, end: int) -> None:
        """Other views instead of the present ones."""
        for view in self._views:
            view.remove()
        self._views, self._first, self._synced = [], first, -1
        self._is_away = False
        self._add_later(end)
        self.sync()

    def sync(self) -> None:
        """Bring the screen up to date with the talk."""
        if self._synced == self._talk.version or not self.is_mounted:
            return
        self._synced = self._talk.version
        # What is complete does not change any more, but a batch of calls may finish in any order.
        for view in self._views[-PAGE:]:
            view.sync()
        if not self._is_away and self._add_later(len(self._talk.blocks)):
            self._trim()
        self._tell_earlier()

    def open_all(self, *, is_open: bool | None = None) -> bool:
        """Show everything in full, or folded again; whether it is open now."""
        self._all_open = (not self._all_open) if is_open is None else is_open
        for view in self._views:
            view.fold(is_open=self._all_open)
        return self._all_open

    def open_thinking(self) -> bool:
        """Show thinking in full, or folded again; whether it is open now."""
        self._thinking_open = not self._thinking_open
        for view in self._views:
            if isinstance(view.block, ReplyBlock):
                view.fold(is_open=self._thinking_open)
        return self._thinking_open

    def find_views(self, needle: str) -> list[BlockView]:
        """The views in whose blocks some words are, whatever their case; earlier blocks get a view for it."""
        if not needle.strip():
            return []
        if self._is_away:
            self.anchor()
        self._first += self._talk.recall(len(self._talk.unread)) if self._talk.unread else 0
        for _ in range(SEARCHED):
            if not any(_has(block, needle) for block in self._talk.blocks[: self._first]):
                break
            self.load_earlier(most=len(self._talk.blocks))
        return [view for view in self._views if _has(view.block, needle)]

    def load_earlier(self, most: int | None = None) -> bool:
        """Give the blocks before the first one that is shown a view; whether there were any."""
        most = MOST if most is None else most
        if self._first == 0 and self._talk.unread:
            self._first = self._talk.recall()
        first = max(0, self._first - PAGE)
        if first == self._first:
            return False
        fresh = [self._open_view(block) for block in self._talk.blocks[first : self._first]]
        anchor = self._views[0] if self._views else None
        self._views[:0] = fresh
        self._first = first
        self.release_anchor()
        self.mount(*fresh, after=0)
        for view in self._views[most:]:
            view.remove()
        self._is_away = self._is_away or len(self._views) > most
        del self._views[most:]
        self._tell_earlier()
        if anchor is not None:
            self.call_after_refresh(self.scroll_to_widget, anchor, animate=False, top=True)
        return True

    async def load_later(self) -> None:
        """Give the blocks after the last one that is shown a view."""
        last = self._views[-1] if self._views else None
        self._add_later(self._first + len(self._views) + PAGE)
        surplus = max(0, len(self._views) - MOST)
        gone = self._views[:surplus]
        del self._views[:surplus]
        self._first += surplus
        self._tell_earlier()
        # The end moves up when they are gone: without waiting, a reader could be there and nothing would load more.
        await self.remove_children(gone)
        if last is not None:
            self.call_after_refresh(self._show_more, last)

    def _show_more(self, last: BlockView) -> None:
        """Go on below a view; where the new ones are all in sight, there is room for more."""
        if last.is_attached:
            self.scroll_to_widget(last, animate=False)
        if self._is_away and self.scroll_y >= self.max_scroll_y:
            self.call_later(self.load_later)

    def _add_later(self, end: int) -> bool:
        """Views up to a block, below those there are; whether there were any to add."""
        known, blocks = self._first + len(self._views), self._talk.blocks
        fresh = [self._open_view(block) for block in blocks[known:end]] if self.is_mounted else []
        if fresh:
            self._views += fresh
            self.mount(*fresh, before="#later")
        self._is_away = self._first + len(self._views) < len(blocks) and self.is_mounted
        return bool(fresh)

    def watch_scroll_y(self, old: float, new: float) -> None:
        """Reaching the top asks for more."""
        super().watch_scroll_y(old, new)
        if new <= 0 < old and self._has_earlier:
            self.call_later(self.load_earlier)
        elif old < new >= self.max_scroll_y and self._is_away:
            self.call_later(self.load_later)

    def on_resize(self) -> None:
        """A higher screen has room for more."""
        if self._has_earlier and self._views and not self.max_scroll_y:
            self.call_later(self.load_earlier)

    def _find_first(self, talk: Talk) -> int:
        """The first block with a view: a screen and a bit, since each takes two rows or more."""
        return max(0, len(talk.blocks) - min(PAGE, self.size.height // 2 + SPARE))

    def _open_view(self, block: Block) -> BlockView:
        is_open = self._all_open or (self._thinking_open and isinstance(block, ReplyBlock))
        return open_view(block, is_open=is_open)

    def _trim(self) -> None:
        """While the end is followed, forget views that are far above."""
        surplus = len(self._views) - MOST
        if surplus > PAGE and self.is_vertical_scroll_end and not self._is_away:
            for view in self._views[:surplus]:
                view.remove()
            del self._views[:surplus]
            self._first += surplus

    @property
    def _has_earlier(self) -> bool:
        return self._first > 0 or bool(self._talk.unread) or not self._talk.is_whole

    def _tell_earlier(self) -> None:
        later = len(self._talk.blocks) - self._first - len(self._views)
        self.set_class(self._is_away, "-has-later")
        self.query_one("#later", Static).update(f"↓ {later} later")
        self.set_class(self._has_earlier, "-has-earlier")
        if not self._has_earlier:
            return
        count = self._first + len(self._talk.unread)
        words = f"↑ {count} earlier" if self._talk.is_whole else "↑ reading what is before"
        self.query_one("#earlier", Static).update(words)
        if not self._first and self._talk.unread and self.max_scroll_y and self.scroll_y <= 0:
            self.call_later(self.load_earlier)  # somebody has been waiting at the top


def _has(block: Block, needle: str) -> bool:
    texts = (getattr(block, name, "") for name in ("text", "output", "thinking", "command", "summary"))
    return any(needle.lower() in text.lower() for text in texts if isinstance(text, str))
