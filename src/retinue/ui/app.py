"""The terminal program: a screen, a link to the crew, and what commands may ask of it."""

import os
from pathlib import Path
from typing import TypeVar

from rich.console import RenderableType
from rich.text import Text
from textual.app import App
from textual.screen import ModalScreen

from retinue.app import Request
from retinue.core.errors import RetinueError
from retinue.ui.commands.registry import Commands
from retinue.ui.formats import clean
from retinue.ui.link import Link
from retinue.ui.screens.main import MainScreen
from retinue.ui.screens.panel import Panel
from retinue.ui.screens.viewer import RunViewer
from retinue.ui.speech import Speech
from retinue.ui.themes import DEFAULT, THEMES
from retinue.ui.widgets.editor import Editor

Answer = TypeVar("Answer")


class RetinueApp(App[int]):
    """Opens the screen first and the crew after it, so that one sees something at once."""

    TITLE = "retinue"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { background: $background; }
    """

    def __init__(self, request: Request, *, first_words: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.request = request
        self.link = Link(request)
        self.speech = Speech(self)
        self.commands = Commands(self)
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
            self.speech.take(words)
        self.speech.take_early()

    async def ask(self, screen: ModalScreen[Answer]) -> Answer | None:
        """Show something over the screen and wait for what it gives back."""
        return await self.push_screen_wait(screen)

    def show_panel(self, title: str, text: RenderableType) -> None:
        """Show a report."""
        self.push_screen(Panel(title, Text(clean(text)) if isinstance(text, str) else text))

    def view_run(self, run_id: str) -> None:
        """Look at one run; the main agent is what the main screen shows."""
        run = self.link.crew.lookout.find(run_id) if self.link.is_open else None
        if run is not None:
            self.push_screen(RunViewer(run))

    def put_words(self, text: str) -> None:
        """Put words into the editor, to be changed and sent."""
        for screen in self.screen_stack:
            for editor in screen.query(Editor):
                editor.put(text)

    def choose_theme(self, name: str) -> None:
        """Another theme, from now on."""
        self.theme = name

    def leave(self) -> None:
        """Go, without a question: whatever works is stopped and can be resumed."""
        self.exit(0)

    async def on_unmount(self) -> None:
        """Close the crew."""
        await self.link.close()
