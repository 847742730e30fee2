"""Panels: a scrollable report, the tool activity, and a wait dialog with a spinner."""

import asyncio
import time
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Generic, TypeVar

from rich.console import RenderableType
from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.widgets import Static

from retinue.core.errors import RetinueError
from retinue.core.events import BranchesMerged, Event
from retinue.core.figures import format_duration
from retinue.core.merge_report import render_report
from retinue.ui.default_keys import bind, bind_all
from retinue.ui.formats import FRAME_S, SPINNER, clean, clean_line, fit_parts
from retinue.ui.screens.overlay import Overlay
from retinue.views.toolkit import Toolkit, render_counts, render_logs

if TYPE_CHECKING:
    from retinue.ui.app import RetinueApp


class Panel(Overlay[None]):
    """Shows a text until it is closed."""

    DEFAULT_CSS = """
    Panel { align: center middle; background: $background 50%; }
    Panel > #frame { width: 92%; height: auto; max-height: 90%; border: round $accent; background: $background; }
    Panel #title { height: 1; padding: 0 1; text-style: bold; }
    Panel #scroll { height: auto; padding: 0 1; scrollbar-size-vertical: 1; }
    Panel #text { height: auto; }
    Panel #foot { height: 1; padding: 0 1; color: $text-muted; }
    """
    BINDINGS = bind_all(
        {
            "close": "tui.select.cancel tui.select.confirm app.view.close",
            "scroll(-1)": "tui.select.up app.view.lineUp",
            "scroll(1)": "tui.select.down app.view.lineDown",
            "page(-1)": "tui.select.pageUp app.view.pageUp",
            "page(1)": "tui.select.pageDown app.view.pageDown",
            "scroll(-100000)": "app.view.top",
            "scroll(100000)": "app.view.bottom",
        }
    )
    HINTS: tuple[str, ...] = ("↑↓: scroll", "esc: close")

    def __init__(self, title: str, text: RenderableType) -> None:
        super().__init__()
        self._title = title
        self._text = text

    def compose(self) -> ComposeResult:
        with Vertical(id="frame"):
            yield Static(clean_line(self._title), id="title", markup=False)
            with VerticalScroll(id="scroll"):
                yield Static(self._text, id="text", markup=False)
            yield Static("", id="foot", markup=False)

    def on_resize(self) -> None:
        """Limit the height of the text so that title and hints stay visible."""
        if not self.query("#scroll"):
            return  # the panel was closed before this call
        frame = self.query_one("#frame")
        rest = frame.gutter.height + sum(each.outer_size.height or 1 for each in self.query("#title, #foot"))
        self.query_one("#scroll").styles.max_height = max(1, self.size.height * 9 // 10 - rest)
        self.query_one("#foot", Static).update(fit_parts(self.HINTS, self.size.width * 92 // 100 - 4))

    def action_close(self) -> None:
        self.dismiss()

    def action_scroll(self, lines: int) -> None:
        self.query_one("#scroll", VerticalScroll).scroll_relative(y=lines, animate=False)

    def action_page(self, step: int) -> None:
        scroll = self.query_one("#scroll", VerticalScroll)
        (scroll.scroll_page_up if step < 0 else scroll.scroll_page_down)(animate=False)


_MOST = "200"


class ActivityPanel(Panel):
    """Shows the activity log; reads it when opened and on request."""

    HINTS = ("↑↓: scroll", "s: reset counts", "c: clear the log", "r: refresh", "esc: close")
    BINDINGS = bind_all(
        {"refresh_log": "app.activity.refresh", "clear_log": "app.activity.clear", "reset_counts": "app.activity.count"}
    )

    def __init__(self, toolkit: Toolkit) -> None:
        super().__init__("Toolkit Activity", "")
        self._toolkit = toolkit
        self._since_ms = 0

    async def on_mount(self) -> None:
        await self.action_refresh_log()

    async def action_refresh_log(self) -> None:
        entries = await asyncio.to_thread(self._toolkit.read_log)
        counted = [entry for entry in entries if entry.at_ms >= self._since_ms]
        text = f"{render_counts(counted)}\n\n{render_logs(entries, ('--limit', _MOST))}"
        self.query_one("#text", Static).update(Text(clean(text)))

    async def action_clear_log(self) -> None:
        try:
            await asyncio.to_thread(self._toolkit.clear_log)
        except RetinueError as error:
            self.notify(clean(str(error)), severity="error", markup=False)
        await self.action_refresh_log()

    async def action_reset_counts(self) -> None:
        """Restart the counts; the log stays."""
        self._since_ms = round(time.time() * 1000)
        await self.action_refresh_log()


class LandingPanel(Panel):
    """Shows which branches of agents wait, have landed or stayed behind; lands them on request."""

    app: "RetinueApp"
    HINTS = ("↑↓: scroll", "l: land all", "r: refresh", "esc: close")
    BINDINGS = bind_all({"refresh_branches": "app.landing.refresh", "land_all": "app.landing.all"})

    def __init__(self) -> None:
        super().__init__("Branches of agents", "")

    async def on_mount(self) -> None:
        self._stop = self.app.link.crew.listen(self._hear, pieces=False)
        await self.action_refresh_branches()

    def on_unmount(self) -> None:
        self._stop()

    def _hear(self, event: Event) -> None:
        if isinstance(event, BranchesMerged):
            self.call_later(self.action_refresh_branches)

    async def action_refresh_branches(self) -> None:
        try:
            found = await self.app.link.crew.list_branches()
        except RetinueError as error:
            found = []
            self.notify(clean(str(error)), severity="error", markup=False)
        lines = [f"{_SIGNS[each.state]} {each.branch}  {each.state}{each.text and ': '}{each.text}" for each in found]
        text = "\n".join(lines) or "No agent has left a branch that is not in the current one."
        self.query_one("#text", Static).update(Text(clean(text)))

    def action_land_all(self) -> None:
        """Land all branches; the work goes on when the panel is closed."""
        self.app.run_worker(self._land(), group="landing")

    async def _land(self) -> None:
        try:
            report = await self.app.link.crew.land(takes_all=True)
        except RetinueError as error:
            self.app.notify(clean(str(error)), severity="error", markup=False)
        else:
            for line in render_report(report):
                self.app.link.note(clean(line), "warning" if report.refused else "information")


_SIGNS = {"waiting": "·", "checking": "…", "landed": "✓", "behind": "✕"}
Made = TypeVar("Made")


class WaitScreen(Overlay[Made | None], Generic[Made]):
    """Shows a spinner until `work` is done; its result is that of the work, or None."""

    DEFAULT_CSS = """
    WaitScreen { align: center middle; background: $background 50%; }
    WaitScreen > #line {
        width: auto; max-width: 90%; height: auto; border: round $accent; background: $background; padding: 0 2;
    }
    """
    BINDINGS = [bind("tui.select.cancel", "leave", is_first=True)]

    def __init__(self, text: str, work: Awaitable[Made]) -> None:
        super().__init__()
        self._text = clean_line(text, 200)
        self._work = work
        self._began_s = time.monotonic()

    def compose(self) -> ComposeResult:
        yield Static(self._text, id="line", markup=False)

    def on_mount(self) -> None:
        self.set_interval(FRAME_S, self._draw)
        self.run_worker(self._wait(), exclusive=True)

    def action_leave(self) -> None:
        """Cancel the work."""
        self.workers.cancel_node(self)
        self.dismiss(None)

    def _draw(self) -> None:
        passed_s = time.monotonic() - self._began_s
        sign = SPINNER[int(passed_s / FRAME_S) % len(SPINNER)]
        text = f"{sign} {self._text} {format_duration(passed_s * 1000)}\nesc: cancel"
        self.query_one("#line", Static).update(text)

    async def _wait(self) -> None:
        try:
            self.dismiss(await self._work)
        except RetinueError as error:
            self.app.notify(clean(str(error)), severity="error", markup=False)
            self.dismiss(None)
