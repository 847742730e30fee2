"""What tools did, kept up to date by hand: figures above, the newest calls below."""

import asyncio
import time

from rich.text import Text
from textual.widgets import Static

from retinue.core.errors import RetinueError
from retinue.ui.bindings import bind
from retinue.ui.formats import clean
from retinue.ui.screens.panel import Panel
from retinue.views.toolkit import Toolkit, render_counts, render_logs

_MOST = "200"


class ActivityPanel(Panel):
    """Reads the log when it is opened and when it is told to."""

    HINTS = ("↑↓ scroll", "s count from now", "c clear the log", "r refresh", "esc closes")
    BINDINGS = [
        bind("app.activity.refresh", "refresh_log"),
        bind("app.activity.clear", "clear_log"),
        bind("app.activity.count", "count_anew"),
    ]

    def __init__(self, toolkit: Toolkit) -> None:
        super().__init__("Toolkit Activity", "")
        self._toolkit = toolkit
        self._since_ms = 0

    async def on_mount(self) -> None:
        """Read at once."""
        await self.action_refresh_log()

    async def action_refresh_log(self) -> None:
        """Read the log again."""
        entries = await asyncio.to_thread(self._toolkit.read_log)
        counted = [entry for entry in entries if entry.at_ms >= self._since_ms]
        text = f"{render_counts(counted)}\n\n{render_logs(entries, ('--limit', _MOST))}"
        self.query_one("#text", Static).update(Text(clean(text)))

    async def action_clear_log(self) -> None:
        """Forget what tools did."""
        try:
            await asyncio.to_thread(self._toolkit.clear_log)
        except RetinueError as error:
            self.notify(clean(str(error)), severity="error", markup=False)
        await self.action_refresh_log()

    async def action_count_anew(self) -> None:
        """Count from now on; the log stays."""
        self._since_ms = round(time.time() * 1000)
        await self.action_refresh_log()
