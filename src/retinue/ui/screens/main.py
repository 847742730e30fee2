"""The main screen: conversation, agents, what waits, the editor and the footer, brought up to date by a timer."""

import time
from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.screen import Screen

from retinue.core.errors import RetinueError
from retinue.ui.formats import find_percent
from retinue.ui.tree import Lingering, Outlook
from retinue.ui.widgets.agents import AgentTree
from retinue.ui.widgets.conversation import Conversation
from retinue.ui.widgets.editor import Editor
from retinue.ui.widgets.fleet import FleetList
from retinue.ui.widgets.footer import Facts, StatusFooter
from retinue.ui.widgets.queued import QueuedLines
from retinue.ui.widgets.working import WorkingLine

if TYPE_CHECKING:
    from retinue.ui.app import RetinueApp
    from retinue.ui.link import Link

REFRESH_S = 0.08
"""How often the screen looks for news: pieces of a reply that come meanwhile are shown together."""


class MainScreen(Screen[None]):
    """Where one talks to the agent and sees all others work."""

    DEFAULT_CSS = """
    MainScreen { layout: vertical; }
    MainScreen > #bottom { height: auto; max-height: 60%; }
    """
    BINDINGS = [
        Binding("escape", "stop", "stop", show=False, id="app.interrupt"),
        Binding("ctrl+c", "clear_or_quit", "clear", show=False, priority=True, id="app.clear"),
        Binding("ctrl+d", "quit_empty", "quit", show=False, priority=True, id="app.exit"),
        Binding("ctrl+o", "open_all", "expand", show=False, priority=True, id="app.tools.expand"),
        Binding("alt+up", "take_back", "edit queued", show=False, priority=True, id="app.message.dequeue"),
        Binding("alt+enter", "follow_up", "follow up", show=False, priority=True, id="app.message.followUp"),
        Binding("f9", "resend", "abort and resend", show=False, priority=True, id="app.resend"),
        Binding("pageup", "page(-1)", "page up", show=False, priority=True),
        Binding("pagedown", "page(1)", "page down", show=False, priority=True),
    ]
    app: "RetinueApp"

    def __init__(self, link: "Link") -> None:
        super().__init__()
        self._link = link
        self._seen = -1
        self._leaving_s = 0.0
        self._lingering = Lingering()

    def compose(self) -> ComposeResult:
        """Top to bottom."""
        yield Conversation(self._link.state.talk, id="conversation")
        with Vertical(id="bottom"):
            yield AgentTree(id="agents")
            yield WorkingLine(id="working")
            yield QueuedLines(id="queued")
            yield Editor(id="editor")
            yield FleetList(id="fleet")
            yield StatusFooter(id="footer")

    def on_mount(self) -> None:
        """Begin to look for news."""
        editor = self.query_one(Editor)
        editor.asks_first = self._take_key
        editor.focus()
        self.set_interval(REFRESH_S, self.sync)
        self.sync()

    def sync(self) -> None:
        """Show what has happened since the last look; costs nothing when nothing has."""
        state = self._link.state
        now_ms = round(time.time() * 1000)
        if state.is_busy:
            self.query_one(WorkingLine).show(state, now_ms)
        self._show_runs(now_ms)
        if self._seen == self._link.version:
            return
        self._seen = self._link.version
        conversation = self.query_one("#conversation", Conversation)
        if conversation.talk is not state.talk:
            conversation.show(state.talk)
        conversation.sync()
        self.query_one(WorkingLine).show(state, now_ms)
        self.query_one(QueuedLines).show(state.steering, state.follow_up)
        self.query_one(StatusFooter).show(self._find_facts())

    def _show_runs(self, now_ms: int) -> None:
        """The agents, above and below the editor."""
        lookout = self._link.crew.lookout if self._link.is_open else None
        runs = lookout.runs if lookout is not None else []
        frame = int(now_ms / 1000 / REFRESH_S)
        shown = self._lingering.choose(runs, self._link.state.rounds, now_ms)
        find_window = (lambda run_id: 0) if lookout is None else lookout.find_window
        outlook = Outlook(
            max(0, self.size.width - 4), now_ms, frame, find_window=find_window, colors=dict(self.app.theme_variables)
        )
        self.query_one(AgentTree).show(shown, outlook)
        self.query_one(FleetList).show([run for run in runs if run.started_ms], now_ms, frame)

    def _take_key(self, key: str) -> bool:
        """Whether a key is for the fleet below the editor: down or left in an empty editor goes there."""
        fleet = self.query_one(FleetList)
        if not fleet.is_active:
            is_empty = not self.query_one(Editor).text
            return key in ("down", "left") and is_empty and fleet.activate()
        if key in ("up", "down"):
            fleet.move(-1 if key == "up" else 1)
            return True
        chosen = fleet.chosen
        fleet.leave()
        if key == "enter":
            self.app.view_run(chosen)
            return True
        return key == "escape"

    def _find_facts(self) -> Facts:
        if not self._link.is_open:
            return Facts(status="starting")
        state, crew = self._link.state, self._link.crew
        model = crew.model
        return Facts(
            folder=self.app.folder,
            model=model.ref,
            thinking=crew.selection.thinking,
            input=state.usage.input + state.usage.cache_read + state.usage.cache_write,
            output=state.usage.output,
            cost=state.usage.cost.total,
            percent=find_percent(state.context_tokens, model.context_window),
            window=model.context_window,
        )

    def on_editor_submitted(self, event: Editor.Submitted) -> None:
        """Send: a command, words for now, or words for an agent that works."""
        event.stop()
        self.app.speech.take(event.text)

    def action_follow_up(self) -> None:
        """Send for later: said when the agent would stop."""
        editor = self.query_one(Editor)
        if text := editor.words.strip():
            editor.remember(text)
            editor.clear_all()
            self.app.speech.take(text, is_follow_up=True)

    def action_stop(self) -> None:
        """Stop what the agent does; what waits goes back into the editor."""
        if self._link.is_open and self._link.state.is_busy:
            self.action_take_back()
            self._link.crew.abort()

    def action_clear_or_quit(self) -> None:
        """Empty the editor; twice with nothing in it leaves."""
        editor = self.query_one(Editor)
        if editor.text:
            editor.clear_all()
        elif self._link.is_open and self._link.state.is_busy:
            self.action_stop()
        elif time.monotonic() - self._leaving_s < 2:
            self.app.leave()
        else:
            self._leaving_s = time.monotonic()
            self.notify("ctrl+c again leaves", timeout=2)

    def action_quit_empty(self) -> None:
        """Leave, when nothing is being written."""
        if not self.query_one(Editor).text:
            self.app.leave()

    def action_open_all(self) -> None:
        """Show all of every block, or fold them."""
        self.query_one("#conversation", Conversation).open_all()

    def action_take_back(self) -> None:
        """Take what waits to be said back into the editor."""
        if not self._link.is_open:
            return
        steering, follow_up = self._link.crew.take_back()
        editor = self.query_one(Editor)
        words = [*steering, *follow_up, editor.words]
        if steering or follow_up:
            editor.put("\n\n".join(text for text in words if text.strip()))

    async def action_resend(self) -> None:
        """Stop the agent and say at once what waits to be said."""
        if not self._link.is_open or not self._link.state.is_busy:
            return
        crew = self._link.crew
        steering, follow_up = crew.take_back()
        crew.abort()
        words = "\n\n".join([*steering, *follow_up])
        if not words.strip():
            return
        await crew.rest()
        try:
            self.app.speech.say(words)
        except RetinueError as error:
            self.query_one(Editor).put(words)
            self.notify(str(error), severity="error")

    def action_page(self, step: int) -> None:
        """Scroll the conversation by a page."""
        conversation = self.query_one("#conversation", Conversation)
        if step < 0:
            conversation.scroll_page_up(animate=False)
        else:
            conversation.scroll_page_down(animate=False)
