"""The main screen: conversation, agents, queued messages, editor and footer, updated by a timer."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.screen import Screen
from textual.timer import Timer
from textual.widget import Widget

from retinue.core.errors import RetinueError
from retinue.core.run import Outcome, Status
from retinue.ui.alerts import alert
from retinue.ui.blocks import NoteBlock
from retinue.ui.completer import Completer
from retinue.ui.conversation_blocks import find_opening
from retinue.ui.default_keys import bind, bind_all
from retinue.ui.editor_program import edit_text
from retinue.ui.formats import FRAME_S, clean_line
from retinue.ui.interrupt import StopKeys, describe_scope
from retinue.ui.navigation import ConversationReader, Way
from retinue.ui.widgets.agent_list import AgentList
from retinue.ui.widgets.completion import CompletionPopup
from retinue.ui.widgets.conversation import Conversation, UnseenLine
from retinue.ui.widgets.editor import Editor
from retinue.ui.widgets.question import TIGHT_ROWS, QuestionBox, render_asker
from retinue.ui.widgets.queued import QueuedLines, resend, take_back
from retinue.ui.widgets.search import SearchLine
from retinue.ui.widgets.status_lines import StatusFooter, WorkingLine, find_facts
from retinue.ui.widgets.welcome import Welcome, list_choices

if TYPE_CHECKING:
    from retinue.ui.app import RetinueApp
    from retinue.ui.link import ScreenLink

QUIET_S = 0.5
"""Seconds without work after which it has ended: reports of finished runs wake the agent after 0.2 s."""
NOTICE_S = 2.0
"""Seconds for which a message in the footer is shown."""
LOW_ROWS = 35
"""On screens with fewer rows, the editor's height is limited."""


class MainScreen(Screen[None]):
    """The screen where the user talks to the agent and sees the subagents."""

    DEFAULT_CSS = """
    MainScreen { layout: vertical; overflow: hidden; }
    MainScreen > #bottom { height: auto; max-height: 80%; }
    MainScreen.-low Editor { max-height: 40vh; }
    MainScreen.-asking > #bottom { max-height: 100%; }
    MainScreen.-asking #queued { display: none; }
    MainScreen.-asking Editor { max-height: 5; }
    MainScreen.-asking.-tight Editor { border: none; min-height: 1; max-height: 1; }
    MainScreen.-tight #welcome, MainScreen.-asking #welcome { display: none; }
    MainScreen.-asking.-tight #working, MainScreen.-asking.-tight #footer { display: none; }
    """
    BINDINGS = [
        bind("app.interrupt", "stop"),
        *bind_all(
            {
                "clear_or_quit": "app.clear",
                "quit_empty": "app.exit",
                "app.suspend_process": "app.suspend",
                "open_all": "app.tools.expand",
                "open_thinking": "app.thinking.toggle",
                "cycle_thinking": "app.thinking.cycle",
                "call('/model')": "app.model.select",
                "call('/approvals')": "app.approvals.select",
                "cycle_model(1)": "app.model.cycleForward",
                "cycle_model(-1)": "app.model.cycleBackward",
                "call('/copy')": "app.message.copy",
                "take_back": "app.message.dequeue",
                "call('/new')": "app.session.new",
                "call('/tree')": "app.session.tree",
                "call('/fork')": "app.session.fork",
                "call('/resume')": "app.session.resume",
                "edit_outside": "app.editor.external",
                "paste": "app.clipboard.pasteImage",
                "resend": "app.resend",
                "use_fallback": "app.limit.fallback",
                "page(-1)": "tui.altScreen.pageUp",
                "page(1)": "tui.altScreen.pageDown",
                "read('turn_half', -1)": "tui.altScreen.halfPageUp",
                "read('turn_half', 1)": "tui.altScreen.halfPageDown",
                "read('scroll', -1)": "tui.altScreen.lineUp",
                "read('scroll', 1)": "tui.altScreen.lineDown",
                "read('go_prompt', -1)": "tui.altScreen.previousPrompt",
                "read('go_prompt', 1)": "tui.altScreen.nextPrompt",
                "read('go_edge', -1)": "tui.altScreen.top",
                "read('go_edge', 1)": "tui.altScreen.bottom",
                "search": "tui.altScreen.search",
            },
            is_first=True,
        ),
    ]
    app: "RetinueApp"

    def __init__(self, link: "ScreenLink") -> None:
        super().__init__()
        self._link = link
        self._seen = -1
        self._search = SearchLine(id="search")
        self._notice = ""
        self._fitted = (0, "")
        self._is_working = False
        self._outcome: Outcome | None = None
        self._quiet: Timer | None = None
        """Runs out when the work has ended."""
        self._alerted: set[str] = set()
        self._told: set[str] = set()
        """Questions that the user was notified of while another screen was on top."""

    def compose(self) -> ComposeResult:
        conversation = Conversation(self._link.state.talk, id="conversation")
        yield conversation
        yield Welcome(id="welcome")
        with Vertical(id="bottom"):
            yield UnseenLine(conversation, id="unseen")
            yield WorkingLine(id="working", markup=False)
            yield QueuedLines(id="queued")
            yield self._search
            yield QuestionBox(id="question")
            yield CompletionPopup(id="completion")
            yield Editor(id="editor")
            yield AgentList(id="agents")
            yield StatusFooter(id="footer")

    def on_mount(self) -> None:
        editor = self.query_one(Editor)
        self._completer = Completer(self.app, editor, self.query_one(CompletionPopup))
        self._stopping, self._agents = StopKeys(self), self.query_one(AgentList)
        self._reading = ConversationReader(self.query_one("#conversation", Conversation))
        editor.asks_first = self._take_key
        editor.is_private = lambda text: text.split()[:1] == ["/login"]
        editor.focus()
        self.set_interval(FRAME_S, self.sync)
        self.app.theme_changed_signal.subscribe(self, lambda theme: self._recolour())
        self.sync()

    def sync(self) -> None:
        """Show what has changed since the last call; cheap when nothing has."""
        state = self._link.state
        now_ms = self.app.now_ms()
        if state.is_busy:
            self._show_work(now_ms)
        if self._agents.is_moving or self._seen != self._link.version:
            self._agents.show(now_ms)
        if self._seen == self._link.version:
            self._show_unseen()  # the user may have scrolled
            return
        self._seen = self._link.version
        conversation = self.query_one("#conversation", Conversation)
        if conversation.talk is not state.talk:
            conversation.show(state.talk)
        conversation.sync()
        self._show_unseen()
        self._show_welcome()
        self._show_work(now_ms)
        self.query_one(QueuedLines).show(state.steering, state.follow_up, self.app.keys.show("app.message.dequeue"))
        self._show_questions()
        self._follow_work()
        self._show_facts()

    def _follow_work(self) -> None:
        """Notice when the agent and its subagents become idle, unless a report wakes the agent soon."""
        state = self._link.state
        # Short work may begin and end between two calls.
        was_working = self._is_working or state.outcome not in (None, self._outcome)
        self._is_working, self._outcome = state.is_busy or self._link.working > 0, state.outcome
        if self._quiet is not None and was_working:
            self._quiet.stop()
        if was_working and not self._is_working:
            self._quiet = self.set_timer(QUIET_S, self._end_work)

    def _end_work(self) -> None:
        outcome = self._link.state.outcome
        if not self.app.departure.complete() and outcome is not None and outcome.status is not Status.STOPPED:
            word = "Finished" if outcome.status is Status.COMPLETED else "Failed"
            alert(self.app, f"{word}: {outcome.error or find_opening(outcome.text) or 'no answer'}")

    def _show_unseen(self) -> None:
        self.query_one(UnseenLine).show(self.app.keys.show("tui.altScreen.bottom"))

    def _show_welcome(self) -> None:
        """Show the welcome text until something is said."""
        welcome, state = self.query_one(Welcome), self._link.state
        is_begun = any(not isinstance(block, NoteBlock) for block in state.talk.blocks)
        if is_begun or state.is_busy or self._agents.has_rows or not self._link.is_open:
            welcome.hide()
        else:
            welcome.show(self._link.crew.model.ref, list_choices(self.app))

    def on_welcome_chosen(self, event: Welcome.Chosen) -> None:
        from retinue.ui.commands.login import begin

        event.stop()
        begin(self.app, event.start)

    def _recolour(self) -> None:
        """Redraw widgets whose text contains colours of the theme."""
        self.query_one(QuestionBox).recolour()
        self._agents.redraw()
        self.query_one(Welcome).redraw()
        self.query_one(CompletionPopup).redraw()
        self.query_one(StatusFooter).refresh_line()
        self._seen = -1

    def _show_work(self, now_ms: int) -> None:
        """Show what the agent does and what the interrupt key would stop."""
        scope = describe_scope(self.app.keys.show("app.interrupt"), self._link.working)
        state = self._link.state
        is_stuck = any(question.kind != "ask" for question in state.questions)
        self.query_one(WorkingLine).show(state, now_ms, "waiting for your answer" if is_stuck else scope)

    def _show_questions(self) -> None:
        """Show the oldest question; if another screen is on top, show a notification."""
        waiting, box = self._link.state.questions, self.query_one(QuestionBox)
        if waiting and box.question is None:
            self._completer.close()
            self._search.close()
            self.query_one(Editor).search.close()
        box.show(waiting)
        self._fit()
        for question in waiting:
            if question.id not in self._alerted:
                self._alerted.add(question.id)
                asker = render_asker(question, self._link.describe_run(question.run_id))
                alert(self.app, f"{asker} asks: {question.title}")
        if self.app.screen is self:
            self.on_screen_resume()
            return
        for question in waiting:
            if question.id not in self._told:
                self._told.add(question.id)
                asker = render_asker(question, self._link.describe_run(question.run_id))
                text = f"{asker} asks: {clean_line(question.title, 200)}"
                self.app.notify(text, title="Question on the main screen", timeout=10, markup=False)

    def on_screen_resume(self) -> None:
        """Remove notifications of questions, which are in sight now."""
        if self._told:
            self._told.clear()
            self.app.clear_notifications()

    def set_focus(self, widget: Widget | None, scroll_visible: bool = True, from_app_focus: bool = False) -> None:
        """Some widget always has the keys, usually the editor; textual would give them to none after some clicks."""
        kept = self.focused or next(iter(self.query(Editor)), None)
        super().set_focus(widget or kept, scroll_visible, from_app_focus)

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """A click on the editor ends the search, whose keys would not work there."""
        if event.widget is self.query_one(Editor):
            self._search.close()

    def on_resize(self) -> None:
        """Keep the answers of a question visible at any size."""
        self._fit()

    def _fit(self) -> None:
        rows, questions = self.size.height, self._link.state.questions
        if (fitted := (rows, questions[0].id if questions else "")) == self._fitted:
            return
        self._fitted = fitted
        self.set_class(bool(questions), "-asking")
        self.set_class(rows < TIGHT_ROWS, "-tight")
        self.set_class(rows < LOW_ROWS, "-low")
        agents = self.query_one("#agents")
        self.query_one(QuestionBox).fit(rows, min(agents.size.height, 5) if agents.display else 0)

    def on_question_box_answered(self, event: QuestionBox.Answered) -> None:
        event.stop()
        try:
            self._link.crew.answer(event.question.id, event.answer)
        except RetinueError as error:
            self._link.note(str(error), "error")
        self.sync()

    def on_completion_popup_clicked(self, event: CompletionPopup.Clicked) -> None:
        event.stop()
        self._completer.take_lit()

    def on_editor_edited(self, event: Editor.Edited) -> None:
        event.stop()
        self._completer.look()

    def _take_key(self, event: events.Key) -> bool:
        """Offer a key to the question, the welcome, the completions and the agent list; False: it is the editor's."""
        box = self.query_one(QuestionBox)
        is_completing = box.is_aside and self.query_one(CompletionPopup).is_open
        if not is_completing and box.take_key(event.key, is_printable=event.is_printable):
            return True
        if not self.query_one(Editor).text and self.query_one(Welcome).take_key(event.key):
            return True
        return self._completer.take_key(event.key) or self._agents.take_key(event.key)

    def on_editor_submitted(self, event: Editor.Submitted) -> None:
        """Send a command or a message; while the agent works, the message is queued."""
        event.stop()
        self._reading.go_edge(1)
        self.app.speech.take(event.text, is_follow_up=event.is_later)

    def action_stop(self) -> None:
        """Give the default answer to a question, else stop the agent; queued messages go back into the editor."""
        self._call_after_keys(self._stop)

    def _call_after_keys(self, act: Callable[[], None]) -> None:
        """Act when the keys that were pressed before have been handled: those of bindings overtake letters."""
        (self.focused or self.query_one(Editor)).call_later(act)

    def _stop(self) -> None:
        if self.query_one(QuestionBox).answer_default():
            return
        if self.app.departure.cancel():
            self._show_facts()
        else:
            self._stopping.stop()

    def action_clear_or_quit(self) -> None:
        """Clear the editor or stop the agent; if there is nothing to do, a second press exits."""
        self._call_after_keys(self._clear_or_quit)

    def _clear_or_quit(self) -> None:
        if not self.query_one(Editor).search.close(is_kept=False):
            self._stopping.clear_or_leave()

    def tell(self, text: str) -> None:
        """Show a message in the footer for NOTICE_S seconds."""
        self._notice = text
        self._show_facts()
        self.set_timer(NOTICE_S, self._untell)

    def _untell(self) -> None:
        self._notice = ""
        self._show_facts()

    def _show_facts(self) -> None:
        facts = find_facts(self.app)
        status = self._notice or self.app.departure.describe() or self._stopping.describe()
        self.query_one(StatusFooter).show(replace(facts, status=status) if status else facts)

    def action_quit_empty(self) -> None:
        """Exit if the editor is empty, else delete the character after the cursor, as in a shell."""
        self._call_after_keys(self._quit_empty)

    def _quit_empty(self) -> None:
        editor = self.query_one(Editor)
        if editor.text:
            editor.action_delete_right()
        else:
            self.app.leave()

    def action_open_all(self) -> None:
        """Expand or collapse all blocks."""
        self.query_one("#conversation", Conversation).open_all()

    def action_open_thinking(self) -> None:
        """Expand or collapse thinking."""
        self.query_one("#conversation", Conversation).open_thinking()

    def action_call(self, text: str) -> None:
        """Run the slash command of a key."""
        self.app.speech.take(text)

    def action_cycle_model(self, step: int) -> None:
        if self._link.is_open:
            chosen = self._link.crew.selection.cycle(step)
            few = "there is only one model to cycle through; change that with /scoped-models"
            self._link.note(f"model: {chosen.model.ref}" if chosen is not None else few)

    def action_use_fallback(self) -> None:
        """Use the fallback models until the usage limit ends."""
        if self._link.is_open and self._link.crew.limits and not self._link.crew.use_fallbacks():
            self._link.note("no fallback model is available; list some in the setting fallbackModels")

    def action_cycle_thinking(self) -> None:
        if self._link.is_open:
            level = self._link.crew.selection.cycle_thinking()
            self._link.note("this model has no thinking levels" if level is None else f"thinking: {level}")

    async def action_edit_outside(self) -> None:
        """Edit the prompt in the user's editor."""
        editor = self.query_one(Editor)
        try:
            editor.put(await edit_text(self.app, editor.words))
        except RetinueError as error:
            self._link.note(str(error), "error")

    async def action_paste(self) -> None:
        """Paste an image or text from the system clipboard."""
        editor = self.query_one(Editor)
        copied = await asyncio.to_thread(self.app.pasteboard.read)
        if text := copied.path or copied.text or self.app.clipboard:
            editor.take_paste(text)
        else:
            self._link.note(copied.problem, "warning")

    def action_take_back(self) -> None:
        """Move queued messages back into the editor."""
        take_back(self)

    async def action_resend(self) -> None:
        """Stop the agent and send queued messages now."""
        await resend(self)

    def action_page(self, step: int) -> None:
        """Scroll the question, the completions, or else the conversation by a page."""
        key = "pageup" if step < 0 else "pagedown"
        if self.query_one(QuestionBox).scroll_page(step) or self._completer.take_key(key):
            return
        self._reading.turn(step)

    def action_read(self, way: Way, step: int) -> None:
        self._reading.move(way, step)

    def action_search(self) -> None:
        self._search.open(self._reading)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """During a search, only reading actions keep their keys."""
        return not self._search.is_open or action in ("page", "read", "open_all", "open_thinking", "search")
