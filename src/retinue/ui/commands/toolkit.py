"""`/toolkit`: what is set up here and what tools did, as panels."""

import asyncio
from typing import TYPE_CHECKING

from retinue.ui.commands.base import Command
from retinue.ui.formats import clean

if TYPE_CHECKING:
    from retinue.ui.app import RetinueApp


async def show_toolkit(app: "RetinueApp", words: str) -> None:
    """A report for each word; without one that is known, which there are."""
    from retinue.app import run_checkup
    from retinue.views.toolkit import Toolkit

    toolkit = Toolkit(app.request, run_checkup)
    if words.lower().split()[:1] == ["activity"]:
        from retinue.ui.screens.activity import ActivityPanel

        await app.ask(ActivityPanel(toolkit))
        app.notify("Activity panel closed")
        return
    answer = await asyncio.to_thread(toolkit.answer, words)
    if answer.notice:
        app.notify(clean(answer.notice), markup=False)
    app.show_panel(answer.title, answer.text.removeprefix(f"{answer.title}\n\n"))


TOOLKIT = Command(
    "toolkit", "what is set up here, and what tools did", show_toolkit, "agents|doctor|logs|activity|modules|lsp|help"
)
