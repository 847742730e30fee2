"""The Textual application: the main screen, the link to the session, and services for slash commands."""

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

from msgspec import structs
from rich.console import RenderableType
from rich.text import Text
from textual.app import App
from textual.css.query import NoMatches
from textual.driver import Driver
from textual.events import Event, Key, Paste
from textual.filter import LineFilter
from textual.screen import ModalScreen, Screen
from textual.widget import MountError

from retinue.app import Request
from retinue.core.errors import RetinueError, quote
from retinue.core.messages import UserContent
from retinue.ui.clipboard import Clipboard
from retinue.ui.default_keys import KeyTable
from retinue.ui.departure import Departure, render_parting
from retinue.ui.driver import BackgroundReported, SafeText, TerminalDriver, teach_keys
from retinue.ui.formats import clean
from retinue.ui.link import ScreenLink
from retinue.ui.screens.main import MainScreen
from retinue.ui.screens.panel import Panel
from retinue.ui.screens.viewer import RunViewer
from retinue.ui.startup import KeptState, find_doubt, read_user_state, save_decision
from retinue.ui.themes import DEFAULT, THEMES, resolve_theme, to_setting
from retinue.ui.user_input import UserInput
from retinue.ui.widgets.editor import Editor

if TYPE_CHECKING:
    from retinue.app import UserState
    from retinue.ui.commands.registry import SlashCommands
    from retinue.ui.shutdown import ShutdownWatch
    from retinue.ui.windows import SessionWindows

Answer = TypeVar("Answer")


class RetinueApp(App[int], inherit_bindings=False):
    """Shows the screen first and opens the session afterwards, so that the user sees something at once."""

    TITLE = "retinue"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    MainScreen { background: $background; }
    ToastRack { dock: top; align: right top; margin: 1 0 0 0; }
    """

    def __init__(
        self,
        request: Request,
        *,
        first_words: Sequence[str | Sequence[UserContent]] = (),
        is_resumed: bool = False,
        windows: "SessionWindows | None" = None,
    ) -> None:
        """`first_words` are sent one after the other when the agent is ready; content lists are sent as prompts.

        `is_resumed`: first let the user choose a session. `windows` show the UI instead of the terminal.
        """
        no_color = os.environ.get("NO_COLOR")
        self.windows = windows
        super().__init__()
        if no_color is not None:
            os.environ["NO_COLOR"] = no_color  # textual removes it, but subprocesses of agents need it too
        self.request = request
        self.keys = KeyTable()
        self._wanted_keys: Mapping[str, tuple[str, ...]] = {}
        self.user_state: UserState | None = None
        """Stored user preferences; None until they are read, and if there is no home directory."""
        self.kept = KeptState()
        self.pasteboard = Clipboard()
        self.now_ms: Callable[[], int] = lambda: round(time.time() * 1000)
        """The clock for everything on screen that moves or counts; tests that compare screens freeze it."""
        self.link = ScreenLink(request)
        self.speech = UserInput(self)
        self.departure = Departure(self)
        self._first_words = first_words
        self._is_resumed = is_resumed
        self.ended_badly = ""
        """The error to print on standard error after the UI has closed."""
        self.parting = ("", "")
        """The last answer and how to resume, to print after the UI has closed."""
        self.has_focus_reports = False
        """Whether the terminal has reported that it got or lost the focus."""
        self.crash: Exception | None = None
        """The unhandled exception that ended the program."""
        self.is_asking_trust = False
        self.is_ready = False
        """Whether the session is open and has got the first prompts."""
        self._ending: ShutdownWatch | None = None
        self._early: list[Event] | None = []
        """Keys and pastes that arrived before the editor existed; None afterwards."""
        self._safety = SafeText()
        for theme in THEMES.values():
            self.register_theme(theme)
        self.theme = DEFAULT
        self._is_terminal_dark = True

    @cached_property
    def commands(self) -> "SlashCommands":
        from retinue.ui.commands.registry import SlashCommands

        return SlashCommands(self)

    def shorten(self, path: str | Path) -> str:
        """Abbreviate the home directory in a path to `~`."""
        home, text = os.path.expanduser("~"), str(path)
        return f"~{text[len(home) :]}" if text == home or text.startswith(f"{home}/") else text

    async def on_mount(self) -> None:
        """Open the session after the first refresh."""
        self._watch_for_end()
        if self.windows is not None:
            await self.windows.open(self)
        # The terminal lost the screen content while the program was suspended.
        self.app_resume_signal.subscribe(self, lambda app: self.refresh(layout=True))
        self.call_after_refresh(self._begin)

    def get_default_screen(self) -> Screen[None]:
        return MainScreen(self.link)

    async def on_event(self, event: Event) -> None:
        """Keep keys and pastes that arrive before the editor exists."""
        if self._early is not None and isinstance(event, Key | Paste):
            self._early.append(event)
        else:
            await super().on_event(event)

    async def _begin(self) -> None:
        early, self._early = self._early or (), None
        for event in early:
            # Before the UI started, the terminal turned Enter into a line feed.
            is_enter = isinstance(event, Key) and event.key == "ctrl+j"
            await super().on_event(Key("enter", "\r") if is_enter else event)
        self.run_worker(self._open(), exclusive=True, group="open")

    def _watch_for_end(self) -> None:
        """On a real terminal, shut down cleanly when the terminal closes or a signal arrives."""
        if self.is_headless or sys.platform == "win32":
            return
        from retinue.ui.shutdown import ShutdownWatch

        self._ending = ShutdownWatch(self.exit)
        self._ending.watch()
        if not self.is_web:
            self.set_interval(1, self._ending.check_terminal)

    def take_up(self) -> None:
        """Continue the work that a usage limit has interrupted."""

        async def go_on() -> None:
            await self.link.crew.go_on()

        if self.link.crew.is_paused:
            self.speech.start(go_on())

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
            # Everything loaded so far lives until the end; scanning it again would only pause the UI.
            gc.enable()
            gc.freeze()
            gc.set_threshold(20_000, 20, 50)
        if self._is_resumed:
            await self.speech.run_command("/resume")
        elif not self._first_words:
            self.take_up()
        for words in self._first_words:
            self.speech.take(words) if isinstance(words, str) else self.speech.pass_on(words)
        self.speech.take_early()
        self.is_ready = True

    async def _read_habits(self) -> None:
        """Read the user's theme, keys and history; reads nothing from the project."""
        user_state, kept = await asyncio.to_thread(read_user_state)
        self.user_state, self.kept = user_state, kept
        self._take_keys(kept.keys)
        if not self._follow_theme():
            text = f"settings.json: theme: found {quote(kept.theme)}; using {self.theme}; /theme lists the themes"
            self.link.note(text, "warning")
        for problem in kept.problems:
            self.link.note(problem, "warning")
        editor = self.screen_stack[0].query_one(Editor)
        editor.history_list.load(kept.history)
        editor.on_remembered = lambda text: self._keep(lambda: user_state.history.add(text))

    def _take_keys(self, wanted: Mapping[str, tuple[str, ...]]) -> None:
        self._wanted_keys = wanted
        self.keys = KeyTable(wanted)
        self.set_keymap(self.keys.keymap)

    def _take_resend_key(self) -> None:
        """Apply `abortResendKey` unless the user's keybindings.json binds the action."""
        key = self.link.crew.crew_settings.abort_resend_key
        if not key or self.user_state is None or "app.resend" in self._wanted_keys:
            return
        if self.user_state.is_key(key):
            self._take_keys({**self._wanted_keys, "app.resend": (key,)})
        else:
            self.link.note(f"abortResendKey: found {quote(key)}; expected a key such as f8; using f9", "warning")

    async def _ask_trust(self) -> None:
        """Ask whether to use the folder's own configuration, before any of it is read."""
        if self.request.approve is not None:
            return
        from retinue.ui.screens.trust import TrustScreen

        doubt = await asyncio.to_thread(find_doubt)
        if doubt is None:
            return
        self.is_asking_trust = True
        answer = await self.push_screen_wait(TrustScreen(*doubt))
        self.is_asking_trust = False
        decision, is_kept = answer or (False, False)
        self.request = self.link.request = structs.replace(self.request, approve=decision)
        if is_kept and (note := await asyncio.to_thread(save_decision, decision)):
            self.link.note(note)

    def _keep(self, work: Callable[[], None]) -> None:
        """Run a small write in a thread."""
        self.run_worker(work, thread=True, group="keep")

    async def ask(self, screen: ModalScreen[Answer]) -> Answer | None:
        """Show a modal screen and wait for its result."""
        return await self.push_screen_wait(screen)

    def show_panel(self, title: str, text: RenderableType) -> None:
        self.push_screen(Panel(title, Text(clean(text)) if isinstance(text, str) else text))

    def view_run(self, run_id: str) -> None:
        """Open the viewer for a run; does nothing for the main agent, which the main screen shows."""
        run = self.link.crew.session_runs.find(run_id) if self.link.is_open else None
        if run is not None:
            self.push_screen(RunViewer(run))

    def put_words(self, text: str) -> None:
        """Put text into the editor."""
        self.screen_stack[0].query_one(Editor).put(text)

    def choose_theme(self, name: str) -> None:
        """Apply a theme, or `auto`, and save the choice."""
        self.kept = replace(self.kept, theme=to_setting(name))
        self._follow_theme()
        if (user_state := self.user_state) is not None:
            self._keep(lambda: user_state.choose_theme(self.kept.theme))

    def on_background_reported(self, event: BackgroundReported) -> None:
        """Follow the terminal's background, unless the setting names a theme."""
        self._is_terminal_dark = event.is_dark
        if self.user_state is not None:
            self._follow_theme()

    def _follow_theme(self) -> bool:
        """Apply the theme of the setting; returns whether it is known."""
        name = resolve_theme(self.kept.theme, self.available_themes, is_dark=self._is_terminal_dark)
        self.theme = name or resolve_theme("", (), is_dark=self._is_terminal_dark)
        return bool(name)

    def choose_start(self, name: str) -> None:
        """Save how to work without a key."""
        self.kept = replace(self.kept, start=name)
        self.link.version += 1
        if (user_state := self.user_state) is not None:
            self._keep(lambda: user_state.choose_start(name))

    def leave(self) -> None:
        """Exit; while subagents are working, ask first. A window among several, or with work to do, is only closed."""
        if self.windows is not None and self.windows.detach():
            return
        if self.link.working:
            self.speech.start(self.departure.request("exit", self._leave_now))
        else:
            self.exit(0)

    async def _leave_now(self) -> None:
        self.exit(0)

    def on_app_focus(self) -> None:
        self.has_focus_reports = True

    def on_app_blur(self) -> None:
        self.has_focus_reports = True

    async def on_unmount(self) -> None:
        if self.link.is_open and (self.return_value == 0 or self.windows is not None):
            self.parting = render_parting(self)
        if self.windows is not None:
            self.windows.begin_end()
        await self.link.close()
        if self.windows is not None:
            error = self.ended_badly or (f"internal error: {self.crash}" if self.crash else "")
            await self.windows.close(*self.parting, error, self.return_value or 0)
        self.pasteboard.close()
        if self._ending is not None:
            self._ending.settle()

    def get_driver_class(self) -> type[Driver]:
        """textual's driver for this platform, or ours on a terminal."""
        teach_keys()
        if self.windows is not None:
            from retinue.ui.windows import WindowDriver

            return WindowDriver
        is_foreign = sys.platform == "win32" or os.environ.get("TEXTUAL_DRIVER")
        return super().get_driver_class() if is_foreign else TerminalDriver

    def get_line_filters(self) -> Sequence[LineFilter]:
        """textual's filters, then ours, which removes unsafe characters."""
        return [*super().get_line_filters(), self._safety]

    def _handle_exception(self, error: Exception) -> None:
        """End with one line instead of textual's traceback, which shows all variables including API keys."""
        if self._exit or (isinstance(error, NoMatches | MountError) and not self.is_running):
            return  # errors while closing are harmless, as of a screen that opens or draws when widgets are gone
        self.crash = self.crash or error
        if self.is_headless:
            super()._handle_exception(error)
        else:
            self._close_messages_no_wait()
