"""Something that takes a while: what it is, for how long already, and Escape to give it up."""

import time
from collections.abc import Awaitable
from typing import Generic, TypeVar

from textual.app import ComposeResult
from textual.widgets import Static

from retinue.core.errors import RetinueError
from retinue.core.figures import format_duration
from retinue.ui.bindings import bind
from retinue.ui.formats import FRAME_S, SPINNER, clean, clean_line
from retinue.ui.screens.overlay import Overlay

Made = TypeVar("Made")


class Waiting(Overlay[Made | None], Generic[Made]):
    """Gives back what was waited for, or None."""

    DEFAULT_CSS = """
    Waiting { align: center middle; background: $background 50%; }
    Waiting > #line {
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
        """One line."""
        yield Static(self._text, id="line", markup=False)

    def on_mount(self) -> None:
        """Begin."""
        self.set_interval(FRAME_S, self._draw)
        self.run_worker(self._wait(), exclusive=True)

    def action_leave(self) -> None:
        """Give it up: whoever works for it is cancelled."""
        self.workers.cancel_node(self)
        self.dismiss(None)

    def _draw(self) -> None:
        passed_s = time.monotonic() - self._began_s
        sign = SPINNER[int(passed_s / FRAME_S) % len(SPINNER)]
        self.query_one("#line", Static).update(
            f"{sign} {self._text} {format_duration(passed_s * 1000)}\nesc gives it up"
        )

    async def _wait(self) -> None:
        try:
            self.dismiss(await self._work)
        except RetinueError as error:
            self.app.notify(clean(str(error)), severity="error", markup=False)
            self.dismiss(None)
