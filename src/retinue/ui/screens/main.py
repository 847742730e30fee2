"""The main screen: conversation, agents, what waits, the editor and the footer, brought up to date by a timer."""

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.screen import Screen

from retinue.core.errors import RetinueError
from retinue.ui.bindings import bind
from retinue.ui.completer import Completer
from retinue.ui.external import edit_text
from retinue.ui.formats import clean_line, find_percent
from retinue.ui.questions import render_asker
from retinue.ui.reading import Reading, Way
from retinue.ui.scope import describe_scope
from retinue.ui.searching import Searching
from retinue.ui.stopping import Stopping
from retinue.ui.tree import Lingering, Outlook, choose_runs
from retinue.ui.widgets.agents import AgentTree
from retinue.ui.widgets.completion import CompletionPopup
from retinue.ui.widgets.conversation import Conversation
from retinue.ui.widgets.editor import Editor
from retinue.ui.widgets.fleet import FleetList
from retinue.ui.widgets.footer import Facts, StatusFooter
from retinue.ui.widgets.question import TIGHT_ROWS, QuestionBox
from retinue.ui.widgets.queued import QueuedLines
from retinue.ui.widgets.search import SearchLine
from retinue.ui.widgets.working import WorkingLine

if TYPE_CHECKING:
    from retinue.ui.app import RetinueApp
    from retinue.ui.link import Link

NOTICE_S = 2.0
"""How long a word in the footer stays."""
REFRESH_S = 0.08
"""How often the screen looks for news: pieces of a reply that come meanwhile are shown together."""


class MainScreen(Screen[None]):
    """Where one talks to the agent and sees all others work."""

    DEFAULT_CSS = """
    MainScreen { layout: vertical; overflow: hidden; }
    MainScreen > #bottom { height: auto; max-height: 60%; }
    MainScreen.-asking > #bottom { max-height: 100%; }
    MainScreen.-asking #agents, MainScreen.-asking #fleet, MainScreen.-asking #queued { display: none; }
    MainScreen.-asking Editor { max-height: 5; }
    MainScreen.-asking.-tight Editor { border: none; min-height: 1; max-height: 1; }
    MainScreen.-asking.-tight #working, MainScreen.-asking.-tight #footer { display: none; }
    """
    BINDINGS = [
        bind("app.interrupt", "stop"),
        *(
            bind(action, method, is_first=True)
            for action, method in {
                "app.clear": "clear_or_quit",
                "app.exit": "quit_empty",
                "app.suspend": "app.suspend_process",
                "app.tools.expand": "open_all",
                "app.thinking.toggle": "open_thinking",
                "app.thinking.cycle": "turn_thinking",
                "app.model.select": "call('/model')",
                "app.model.cycleForward": "turn_model(1)",
                "app.model.cycleBackward": "turn_model(-1)",
                "app.message.copy": "call('/copy')",
                "app.message.dequeue": "take_back",
                "app.message.followUp": "follow_up",
                "app.session.new": "call('/new')",
                "app.session.tree": "call('/tree')",
                "app.session.fork": "call('/tree')",
                "app.session.resume": "call('/resume')",
                "app.editor.external": "edit_outside",
                "app.clipboard.pasteImage": "paste",
                "app.resend": "resend",
                "tui.altScreen.pageUp": "page(-1)",
                "tui.altScreen.pageDown": "page(1)",
                "tui.altScreen.halfPageUp": "read('turn_half', -1)",
                "tui.altScreen.halfPageDown": "read('turn_half', 1)",
                "tui.altScreen.lineUp": "read('scroll', -1)",
                "tui.altScreen.lineDown": "read('scroll', 1)",
                "tui.altScreen.previousPrompt": "read('go_prompt', -1)",
                "tui.altScreen.nextPrompt": "read('go_prompt', 1)",
                "tui.altScreen.top": "read('go_edge', -1)",
                "tui.altScreen.bottom": "read('go_edge', 1)",
                "tui.altScreen.search": "search",
            }.items()
        ),
    ]
    app: "RetinueApp"

    def __init__(self, link: "Link") -> None:
        super().__init__()
        self._link = link
        self._seen = -1
        self._is_moving = False
        """Whether runs are shown, whose figures change by themselves."""
        self._searching: Searching | None = None
        self._notice = ""
        self._fitted = (0, "")
        self._told: set[str] = set()
        """Questions that were told of while something lay over this screen."""
        self._lingering = Lingering()

    def compose(self) -> ComposeResult:
        """Top to bottom."""
        yield Conversation(self._link.state.talk, id="conversation")
        with Vertical(id="bottom"):
            yield AgentTree(id="agents")
            yield WorkingLine(id="working")
            yield QueuedLines(id="queued")
            yield SearchLine(id="search")
            yield QuestionBox(id="question")
            yield CompletionPopup(id="completion")
            yield Editor(id="editor")
            yield FleetList(id="fleet")
            yield StatusFooter(id="footer")

    def on_mount(self) -> None:
        """Begin to look for news."""
        editor = self.query_one(Editor)
        self._completer = Completer(self.app, editor, self.query_one(CompletionPopup))
        self._stopping = Stopping(self)
        self._reading = Reading(self.query_one("#conversation", Conversation))
        self._searching = Searching(self.query_one(SearchLine), self._reading, editor)
        editor.asks_first = self._take_key
        editor.focus()
        self.set_interval(REFRESH_S, self.sync)
        self.sync()

    def sync(self) -> None:
        """Show what has happened since the last look; costs nothing when nothing has."""
        state = self._link.state
        now_ms = self.app.now_ms()
        if state.is_busy:
            self._show_work(now_ms)
        if self._is_moving or self._seen != self._link.version:
            self._show_runs(now_ms)
        if self._seen == self._link.version:
            return
        self._seen = self._link.version
        conversation = self.query_one("#conversation", Conversation)
        if conversation.talk is not state.talk:
            conversation.show(state.talk)
        conversation.sync()
        self._show_work(now_ms)
        self.query_one(QueuedLines).show(state.steering, state.follow_up, self.app.keys.show("app.message.dequeue"))
        self._show_questions()
        self._show_facts()

    def _show_work(self, now_ms: int) -> None:
        """What the agent does, and what a key would stop."""
        scope = describe_scope(self.app.keys.show("app.interrupt"), self._stopping.runs)
        state = self._link.state
        self.query_one(WorkingLine).show(state, now_ms, "waits for your answer" if state.questions else scope)

    def _show_runs(self, now_ms: int) -> None:
        """The agents, above and below the editor."""
        lookout = self._link.crew.lookout if self._link.is_open else None
        runs = lookout.runs if lookout is not None else []
        frame = int(now_ms / 1000 / REFRESH_S)
        own = self._link.crew.crew_settings if self._link.is_open else None
        listed = choose_runs(runs, "background" if own is None else own.widget_mode)
        shown = self._lingering.choose(listed, self._link.state.rounds, now_ms)
        find_window = (lambda run_id: 0) if lookout is None else lookout.find_window
        outlook = Outlook(
            max(0, self.size.width - 4),
            now_ms,
            frame,
            find_window=find_window,
            colors=self.app.theme_variables,
            mode="auto" if own is None else own.widget_display_mode,
        )
        self.query_one(AgentTree).show(shown, outlook)
        has_fleet = own is None or own.fleet_view
        fleet = self.query_one(FleetList)
        fleet.show([run for run in runs if run.started_ms and has_fleet], now_ms, frame)
        self._is_moving = bool(shown) or fleet.has_rows

    def _show_questions(self) -> None:
        """The oldest question; where something lies over this screen, a word that there is one."""
        waiting, box = self._link.state.questions, self.query_one(QuestionBox)
        if waiting and box.question is None:
            self._completer.close()
            self._end_search()
        box.show(waiting)
        self._fit()
        if self.app.screen is self:
            return
        for question in waiting:
            if question.id not in self._told:
                self._told.add(question.id)
                text = f"{render_asker(question)} asks: {clean_line(question.title, 200)}"
                self.app.notify(text, title="A question waits on the main screen", timeout=10, markup=False)

    def on_resize(self) -> None:
        """A question keeps its answers in sight whatever the size."""
        self._fit()

    def _fit(self) -> None:
        rows, questions = self.size.height, self._link.state.questions
        if (fitted := (rows, questions[0].id if questions else "")) == self._fitted:
            return
        self._fitted = fitted
        self.set_class(bool(questions), "-asking")
        self.set_class(rows < TIGHT_ROWS, "-tight")
        self.query_one(QuestionBox).fit(rows)

    def on_question_box_answered(self, event: QuestionBox.Answered) -> None:
        """Pass the decision on."""
        event.stop()
        try:
            self._link.crew.questions.answer(event.question.id, event.answer)
        except RetinueError as error:
            self._link.note(str(error), "error")
        self.sync()

    def on_completion_popup_clicked(self, event: CompletionPopup.Clicked) -> None:
        """Take what was clicked."""
        event.stop()
        self._completer.take_lit()

    def on_editor_edited(self, event: Editor.Edited) -> None:
        """See what could come next."""
        event.stop()
        self._completer.look()

    def _take_key(self, event: events.Key) -> bool:
        """Whether a key is for a question, for the completions, or for the fleet; else the editor gets it."""
        box = self.query_one(QuestionBox)
        is_completing = box.is_aside and self.query_one(CompletionPopup).is_open
        if not is_completing and box.take_key(event.key, is_printable=event.is_printable):
            return True
        return self._completer.take_key(event.key) or self._take_fleet_key(event.key)

    def _take_fleet_key(self, key: str) -> bool:
        """Whether a key is for the fleet below the editor: down or left in an empty editor goes there."""
        fleet, keys = self.query_one(FleetList), self.app.keys
        if not fleet.is_active:
            is_empty = not self.query_one(Editor).text
            return keys.means(key, "app.fleet.open") and is_empty and fleet.activate()
        is_up = keys.means(key, "tui.select.up")
        if is_up or keys.means(key, "tui.select.down"):
            fleet.move(-1 if is_up else 1)
            return True
        chosen = fleet.chosen
        fleet.leave()
        if keys.means(key, "tui.select.confirm"):
            self.app.view_run(chosen)
            return True
        return keys.means(key, "tui.select.cancel")

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
        """Give the default answer to what is asked, else stop what works; what waits goes back into the editor."""
        if not self.query_one(QuestionBox).answer_default():
            self._stopping.stop()

    def action_clear_or_quit(self) -> None:
        """Empty the editor, or stop the agent; twice with nothing to do leaves."""
        self._stopping.clear_or_leave()

    def tell(self, text: str) -> None:
        """Say something in the footer for a moment."""
        self._notice = text
        self._show_facts()
        self.set_timer(NOTICE_S, self._untell)

    def _untell(self) -> None:
        self._notice = ""
        self._show_facts()

    def _show_facts(self) -> None:
        facts, status = self._find_facts(), self._notice or self._stopping.describe()
        self.query_one(StatusFooter).show(replace(facts, status=status) if status else facts)

    def action_quit_empty(self) -> None:
        """Leave, when nothing is being written; else delete after the cursor, as in a shell."""
        editor = self.query_one(Editor)
        if editor.text:
            editor.action_delete_right()
        else:
            self.app.leave()

    def action_open_all(self) -> None:
        """Show all of every block, or fold them."""
        self.query_one("#conversation", Conversation).open_all()

    def action_open_thinking(self) -> None:
        """Show thinking in full, or fold it."""
        self.query_one("#conversation", Conversation).open_thinking()

    def action_call(self, text: str) -> None:
        """Call a command by its key."""
        self.app.speech.take(text)

    def action_turn_model(self, step: int) -> None:
        """The next model, or the previous one."""
        if self._link.is_open:
            chosen = self._link.crew.selection.cycle(step)
            self._link.note(f"model: {chosen.model.ref}" if chosen is not None else "there is only one model")

    def action_turn_thinking(self) -> None:
        """The next thinking level."""
        if self._link.is_open:
            level = self._link.crew.selection.cycle_thinking()
            self._link.note("this model does not think" if level is None else f"thinking: {level}")

    async def action_edit_outside(self) -> None:
        """Write in the user's own editor."""
        editor = self.query_one(Editor)
        try:
            editor.put(await edit_text(self.app, editor.words))
        except RetinueError as error:
            self._link.note(str(error), "error")

    async def action_paste(self) -> None:
        """Put in what other programs have copied: an image, or text."""
        editor = self.query_one(Editor)
        copied = await asyncio.to_thread(self.app.pasteboard.read)
        if text := copied.path or copied.text or self.app.clipboard:
            editor.take_paste(text)
        else:
            self._link.note(copied.problem, "warning")

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
        crew.abort(spares_runs=True)
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
        """Scroll by a page: what is asked, the completions, else the conversation."""
        key = "pageup" if step < 0 else "pagedown"
        if self.query_one(QuestionBox).scroll_page(step) or self._completer.take_key(key):
            return
        self._reading.turn(step)

    def action_read(self, way: Way, step: int) -> None:
        """Go elsewhere in the conversation."""
        self._reading.move(way, step)

    def action_search(self) -> None:
        """Look for words in the conversation."""
        if self._searching is not None:
            self._searching.open()

    def on_search_line_changed(self, event: SearchLine.Changed) -> None:
        """Other words."""
        event.stop()
        if self._searching is not None:
            self._searching.find(event.text)

    def on_search_line_moved(self, event: SearchLine.Moved) -> None:
        """The next place, or the one before."""
        event.stop()
        if self._searching is not None:
            self._searching.go(event.step)

    def on_search_line_closed(self, event: SearchLine.Closed) -> None:
        """Back to writing."""
        event.stop()
        self._end_search()

    def _end_search(self) -> None:
        if self._searching is not None:
            self._searching.close()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """While somebody searches, only what reads has its keys."""
        is_searching = self._searching is not None and self._searching.is_open
        return not is_searching or action in ("page", "read", "open_all", "open_thinking", "search")
