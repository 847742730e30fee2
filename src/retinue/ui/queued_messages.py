"""What waits to be said to an agent that works: taken back into the editor, or said at once instead."""

from typing import TYPE_CHECKING

from retinue.core.errors import RetinueError
from retinue.ui.widgets.editor import Editor

if TYPE_CHECKING:
    from retinue.ui.screens.main import MainScreen


class Unsaid:
    """The queued words of the main agent."""

    def __init__(self, screen: "MainScreen") -> None:
        self._screen = screen
        self._link = screen.app.link

    def take_back(self) -> None:
        """Put them into the editor, before what is written there."""
        if not self._link.is_open:
            return
        steering, follow_up = self._link.crew.take_back()
        editor = self._screen.query_one(Editor)
        words = [*steering, *follow_up, editor.words]
        if steering or follow_up:
            editor.put("\n\n".join(text for text in words if text.strip()))

    async def resend(self) -> None:
        """Stop the agent and say them at once; when that fails they are in the editor."""
        if not self._link.is_open or not self._link.state.is_busy:
            return
        crew = self._link.crew
        steering, follow_up = crew.take_back()
        crew.abort(spares_runs=True)
        words = "\n\n".join([*steering, *follow_up])
        if not words.strip():
            return
        await crew.rest()
        try:
            self._screen.app.speech.say(words)
        except RetinueError as error:
            self._screen.query_one(Editor).put(words)
            self._screen.notify(str(error), severity="error", markup=False)
