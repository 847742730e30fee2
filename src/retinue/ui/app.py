"""The terminal program: a screen, a link to the crew, and what becomes of the user's words."""

import os
from pathlib import Path

from textual.app import App

from retinue.app import Request
from retinue.core.errors import RetinueError
from retinue.ui.link import Link
from retinue.ui.screens.main import MainScreen
from retinue.ui.screens.viewer import RunViewer
from retinue.ui.themes import DEFAULT, THEMES


class RetinueApp(App[int]):
    """Opens the screen first and the crew after it, so that one sees something at once."""

    TITLE = "retinue"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { background: $background; }
    """

    def __init__(self, request: Request, *, first_words: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.link = Link(request)
        self._first_words = first_words
        self.ended_badly = ""
        """Why it could not go on, for standard error."""

    @property
    def folder(self) -> str:
        """The working directory, short."""
        home, cwd = os.path.expanduser("~"), str(Path.cwd())
        return f"~{cwd[len(home) :]}" if cwd == home or cwd.startswith(f"{home}/") else cwd

    def on_mount(self) -> None:
        """Show the screen, then open the crew."""
        for theme in THEMES.values():
            self.register_theme(theme)
        self.theme = DEFAULT
        self.push_screen(MainScreen(self.link))
        self.run_worker(self._open(), exclusive=True, group="open")

    async def _open(self) -> None:
        try:
            await self.link.open()
        except RetinueError as error:
            self.ended_badly = str(error)
            self.exit(error.exit_status)
            return
        for words in self._first_words:
            self.send(words)

    def send(self, text: str, *, is_follow_up: bool = False) -> None:
        """What the user has written: said now when the agent rests, before its next reply or its end when it works."""
        if not self.link.is_open:
            self._first_words = (*self._first_words, text)
            return
        crew = self.link.crew
        if not crew.is_busy:
            self.run_worker(self._prompt(text), group="prompt")
        elif is_follow_up:
            crew.follow_up(text)
        else:
            crew.steer(text)

    async def _prompt(self, text: str) -> None:
        try:
            await self.link.prompt(text)
        except RetinueError as error:
            self.link.state.talk.note(str(error), "error")
            self.link.version += 1

    def view_run(self, run_id: str) -> None:
        """Look at one run; the main agent is what the main screen shows."""
        run = self.link.crew.lookout.find(run_id) if self.link.is_open else None
        if run is not None:
            self.push_screen(RunViewer(run))

    def leave(self) -> None:
        """Go, without a question: whatever works is stopped and can be resumed."""
        self.exit(0)

    async def on_unmount(self) -> None:
        """Close the crew."""
        await self.link.close()
