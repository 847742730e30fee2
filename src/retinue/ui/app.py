"""The terminal program: a screen, a link to the crew, and what commands may ask of it."""

import asyncio
import gc
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from rich.console import RenderableType
from rich.text import Text
from textual.app import App
from textual.driver import Driver
from textual.events import Event, Key, Paste
from textual.filter import LineFilter
from textual.screen import ModalScreen, Screen

from retinue.app import Request
from retinue.core.errors import RetinueError, quote
from retinue.core.messages import UserContent
from retinue.ui.driver import SafeText, teach_keys
from retinue.ui.formats import clean
from retinue.ui.keys import KeyTable
from retinue.ui.link import ScreenLink
from retinue.ui.pasteboard import Pasteboard
from retinue.ui.screens.main import MainScreen
from retinue.ui.screens.panel import Panel
from retinue.ui.screens.viewer import RunViewer
from retinue.ui.themes import DEFAULT, THEMES
from retinue.ui.user_input import Speech
from retinue.ui.widgets.editor import Editor

if TYPE_CHECKING:
    from retinue.app import Habits
    from retinue.ui.commands.registry import SlashCommands
    from retinue.ui.shutdown import ShutdownWatch

Answer = TypeVar("Answer")


class RetinueApp(App[int], inherit_bindings=False):
    """Opens the screen first and the crew after it, so that one sees something at once."""

    TITLE = "retinue"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    MainScreen { background: $background; }
    ToastRack { dock: top; align: right top; margin: 1 0 0 0; }
    """

    def __init__(self, request: Request, *, first_words: Sequence[str | Sequence[UserContent]] = ()) -> None:
        """`first_words` are said one after the other as soon as there is an agent; those with files are prompts."""
        no_color = os.environ.get("NO_COLOR")
        super().__init__()
        if no_color is not None:
            os.environ["NO_COLOR"] = no_color  # textual takes it away, but what agents start shall know it too
        self.request = request
        self.keys = KeyTable()
        self._wanted_keys: Mapping[str, tuple[str, ...]] = {}
        self.habits: Habits | None = None
        """What is kept of the user; None until it is read, and where there is no home."""
        self.double_escape = "tree"
        """What Escape does when it is pressed twice at rest."""
        self.tree_filter = "default"
        """How much of a session the tree shows at first."""
        self.external_editor = ""
        """The command the user wishes to write with."""
        self.pasteboard = Pasteboard()
        self.now_ms: Callable[[], int] = lambda: round(time.time() * 1000)
        """The clock of everything on the screen that moves or counts; it stands still where screens are compared."""
        self.link = ScreenLink(request)
        self.speech = Speech(self)
        self._first_words = first_words
        self.ended_badly = ""
        """Why it could not go on, for standard error."""
        self.crash: Exception | None = None
        """A bug of ours that ended it."""
        self._ending: ShutdownWatch | None = None
        self._early: list[Event] | None = []
        """What was typed before there was an editor to take it; None from then on."""
        self._safety = SafeText()
        for theme in THEMES.values():
            self.register_theme(theme)
        self.theme = DEFAULT

    @cached_property
    def commands(self) -> "SlashCommands":
        """What can be called by a slash; loaded when it is first asked for."""
        from retinue.ui.commands.registry import SlashCommands

        return SlashCommands(self)

    @property
    def folder(self) -> str:
        """The working directory, short."""
        return self.shorten(Path.cwd())

    def shorten(self, path: str | Path) -> str:
        """A path as people say it: below the home directory with a tilde."""
        home, text = os.path.expanduser("~"), str(path)
        return f"~{text[len(home) :]}" if text == home or text.startswith(f"{home}/") else text

    def on_mount(self) -> None:
        """Open the crew as soon as there is something to see."""
        self._watch_for_end()
        # The terminal has forgotten the screen while the program was in the background.
        self.app_resume_signal.subscribe(self, lambda app: self.refresh(layout=True))
        self.call_after_refresh(self._begin)

    def get_default_screen(self) -> Screen[None]:
        """The one that is always there."""
        return MainScreen(self.link)

    async def on_event(self, event: Event) -> None:
        """Keep what is typed while nobody can take it yet."""
        if self._early is not None and isinstance(event, Key | Paste):
            self._early.append(event)
        else:
            await super().on_event(event)

    async def _begin(self) -> None:
        early, self._early = self._early or (), None
        for event in early:
            # Typed before the screen was there, the terminal made a line feed of Enter.
            is_enter = isinstance(event, Key) and event.key == "ctrl+j"
            await super().on_event(Key("enter", "\r") if is_enter else event)
        self.run_worker(self._open(), exclusive=True, group="open")

    def _watch_for_end(self) -> None:
        """Where there is a real terminal, its end and signals end the program in good order."""
        if self.is_headless or sys.platform == "win32":
            return
        from retinue.ui.shutdown import ShutdownWatch

        self._ending = ShutdownWatch(self.exit)
        self._ending.watch()
        if not self.is_web:
            self.set_interval(1, self._ending.check_terminal)

    async def _open(self) -> None:
        try:
            await self._read_habits()
            await self._ask_trust()
            await self.link.open()
        except RetinueError as error:
            self.ended_badly = str(error)
            self.exit(error.exit_status)
            return
        self._take_resend_key()
        if not self.is_headless:
            # What was loaded until here stays: the collector need not stop the screen to look at it again and again.
            gc.enable()
            gc.freeze()
            gc.set_threshold(20_000, 20, 50)
        for words in self._first_words:
            self.speech.take(words) if isinstance(words, str) else self.speech.pass_on(words)
        self.speech.take_early()

    async def _read_habits(self) -> None:
        """Theme, keys and history of the user; nothing of the project."""
        from retinue.ui.startup import read_habits

        habits, kept = await asyncio.to_thread(read_habits)
        self.habits = habits
        self.double_escape, self.external_editor = kept.double_escape, kept.external_editor
        self.tree_filter = kept.tree_filter
        self._take_keys(kept.keys)
        if kept.theme in self.available_themes:
            self.theme = kept.theme
        for problem in kept.problems:
            self.link.note(problem, "warning")
        editor = self.screen_stack[0].query_one(Editor)
        editor.history_list.load(kept.history)
        editor.on_remembered = lambda text: self._keep(lambda: habits.history.add(text))

    def _take_keys(self, wanted: Mapping[str, tuple[str, ...]]) -> None:
        self._wanted_keys = wanted
        self.keys = KeyTable(wanted)
        self.set_keymap(self.keys.keymap)

    def _take_resend_key(self) -> None:
        """`abortResendKey`, where the user's keybindings.json says nothing about it."""
        key = self.link.crew.crew_settings.abort_resend_key
        if not key or self.habits is None or "app.resend" in self._wanted_keys:
            return
        if self.habits.is_key(key):
            self._take_keys({**self._wanted_keys, "app.resend": (key,)})
        else:
            self.link.note(f"abortResendKey: found {quote(key)}; expected a key such as f8; using f9", "warning")

    async def _ask_trust(self) -> None:
        """Before anything of a folder is read that brings its own configuration: whether that is used."""
        if self.request.approve is not None:
            return
        from retinue.ui.screens.trust import TrustScreen
        from retinue.ui.startup import find_doubt, save_decision

        doubt = await asyncio.to_thread(find_doubt)
        if doubt is None:
            return
        answer = await self.push_screen_wait(TrustScreen(*doubt))
        decision, is_kept = answer or (False, False)
        self.request = replace(self.request, approve=decision)
        self.link.decide(decision)
        if is_kept and (note := await asyncio.to_thread(save_decision, decision)):
            self.link.note(note)

    def _keep(self, work: Callable[[], None]) -> None:
        """Write something small without making the screen wait."""
        self.run_worker(work, thread=True, group="keep")

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
        """Another theme, from now on and next time."""
        self.theme = name
        if (habits := self.habits) is not None:
            self._keep(lambda: habits.choose_theme(name))

    def leave(self) -> None:
        """Go, without a question: whatever works is stopped and can be resumed."""
        self.exit(0)

    async def on_unmount(self) -> None:
        """Close the crew."""
        await self.link.close()
        self.pasteboard.close()
        if self._ending is not None:
            self._ending.settle()

    def get_driver_class(self) -> type[Driver]:
        """textual's for this platform; ours where it is a terminal."""
        teach_keys()
        if sys.platform == "win32" or os.environ.get("TEXTUAL_DRIVER"):
            return super().get_driver_class()
        from retinue.ui.driver import TerminalDriver

        return TerminalDriver

    def get_line_filters(self) -> Sequence[LineFilter]:
        """textual's, and after them the barrier that nothing unsafe gets through."""
        return [*super().get_line_filters(), self._safety]

    def _handle_exception(self, error: Exception) -> None:
        """End with one line instead of a page that shows all variables, keys among them."""
        if self._exit:
            return  # what is half open while it closes
        self.crash = self.crash or error
        if self.is_headless:
            super()._handle_exception(error)
        else:
            self._close_messages_no_wait()
