"""Viewer for one run over the main screen: read and search its live conversation, steer it, stop it."""

import time
from typing import TYPE_CHECKING

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Static

from retinue.core import events as ev
from retinue.core.receipt import describe_verdict
from retinue.core.run import Run, Status
from retinue.ui.agent_rows import RowOptions, find_sign, name_run, name_status, render_figures
from retinue.ui.blocks import UserBlock
from retinue.ui.conversation_blocks import ConversationBlocks, describe_activity
from retinue.ui.default_keys import bind_all
from retinue.ui.formats import FRAME_S, clean_line, fit_parts
from retinue.ui.navigation import ConversationReader, Way
from retinue.ui.screens.overlay import Overlay
from retinue.ui.widgets.conversation import Conversation
from retinue.ui.widgets.line import PurposeLine
from retinue.ui.widgets.queued import QueuedLines

if TYPE_CHECKING:
    from retinue.ui.app import RetinueApp

LEAST_ABOUT = 12
"""Minimum columns for the description of a run in the head."""
ARMED_S = 3.0
"""Seconds within which a second `x` stops the run."""


class RunViewer(Overlay[None]):
    """Shows one run from its first message on."""

    DEFAULT_CSS = """
    RunViewer { align: center middle; background: $background 60%; }
    RunViewer > #frame { width: 90%; height: 80%; min-height: 5; border: round $accent; background: $background; }
    RunViewer #head { height: auto; max-height: 2; padding: 0 1; text-wrap: nowrap; text-overflow: ellipsis; }
    RunViewer #foot { height: 1; padding: 0 1; color: $text-muted; }
    """
    BINDINGS = bind_all(
        {
            "close": "tui.select.cancel app.view.close",
            "read('scroll', -1)": "tui.select.up app.view.lineUp",
            "read('scroll', 1)": "tui.select.down app.view.lineDown",
            "read('turn', -1)": "tui.select.pageUp app.view.pageUp",
            "read('turn', 1)": "tui.select.pageDown app.view.pageDown",
            "read('turn_half', -1)": "tui.altScreen.halfPageUp",
            "read('turn_half', 1)": "tui.altScreen.halfPageDown",
            "read('go_prompt', -1)": "tui.altScreen.previousPrompt",
            "read('go_prompt', 1)": "tui.altScreen.nextPrompt",
            "read('go_edge', -1)": "app.view.top",
            "read('go_edge', 1)": "app.view.bottom",
            "open_all": "app.tools.expand",
            "compose_words": "app.view.say",
            "search": "app.view.search tui.altScreen.search",
            "next(1)": "app.view.searchNext",
            "next(-1)": "app.view.searchPrevious",
            "stop": "app.view.stop",
        }
    )
    app: "RetinueApp"

    def __init__(self, run: Run) -> None:
        super().__init__()
        self._run = run
        self._talk = ConversationBlocks(run.id)
        self._armed_s = 0.0
        self._notice = ""
        self._was_over = run.status.is_final
        self._head = Text()
        self._needle = ""
        self._waiting: list[str] = []
        """Messages to the run that it has not read."""
        self._sent: list[str] = []
        """Those of them that were sent from here."""

    def _key(self, name: str) -> str:
        return self.app.keys.show(f"app.view.{name}")

    @property
    def _help(self) -> str:
        """The most important keys, as currently bound."""
        key = self._key
        working = (f"{key('say')}: send a message", f"{key('stop')} {key('stop')}: stop")
        parts = (
            "↑↓: scroll",
            f"{key('search')}: search",
            *(working if not self._run.status.is_final else ()),
            f"{self.app.keys.show('tui.select.cancel')}: close",
        )
        return fit_parts(parts, self.query_one("#foot").size.width or self.size.width)

    def compose(self) -> ComposeResult:
        with Vertical(id="frame"):
            yield Static("", id="head", markup=False)
            yield Conversation(self._talk, id="run-conversation")
            yield QueuedLines(id="sent")
            yield PurposeLine()
            yield Static("", id="foot", markup=False)

    def on_resize(self) -> None:
        """Show as many key hints as fit."""
        self.call_after_refresh(self._show_foot)

    def _show_foot(self) -> None:
        if not self._notice:
            for foot in self.query("#foot").results(Static):
                foot.update(self._help)

    def on_mount(self) -> None:
        """Show the messages so far and follow new events."""
        self._reading = ConversationReader(self.query_one(Conversation))
        self.query_one(Conversation).can_focus = True
        self.query_one(Conversation).focus()
        self.run_worker(self._follow(), exclusive=True)
        self.set_interval(FRAME_S, self.sync)

    async def _follow(self) -> None:
        session_runs = self.app.link.crew.session_runs
        self._talk = ConversationBlocks(self._run.id, session_runs.read_messages(self._run.id))
        self._talk.go_on(*self.app.link.subagent_streams.find(self._run.id))
        self.query_one(Conversation).show(self._talk)
        self._waiting = session_runs.list_waiting(self._run.id)
        async for event in session_runs.follow(self._run.id):
            self._talk.apply(event)
            self._follow_words(event)

    def _follow_words(self, event: ev.Event) -> None:
        """Keep the list of messages that the run has not read, and say when it reads one."""
        last = self._talk.blocks[-1] if self._talk.blocks else None
        match event:
            case ev.RunSteered():
                self._waiting.append(event.text)
            case ev.Steered():
                self._waiting = [*event.steering, *event.follow_up]
            case ev.MessageFinished() if isinstance(last, UserBlock) and last.text in self._sent:
                self._sent.remove(last.text)
                self._waiting = [text for text in self._waiting if text != last.text]
                self._tell("delivered")
            case ev.RunFinished():
                self._waiting = []
                self._tell("the agent finished before it read your message" if self._sent else "")
                self._sent = []

    def sync(self) -> None:
        """Show what has changed."""
        conversation = self.query_one(Conversation)
        conversation.sync()
        self.query_one(QueuedLines).show(self._waiting, [], "")
        now_ms = self.app.now_ms()
        head = self._draw_head(now_ms)
        if head != self._head:
            self._head = head
            self.query_one("#head", Static).update(head)
        if self._run.status.is_final != self._was_over:
            self._was_over = self._run.status.is_final
            self._show_foot()
        if not self._talk.blocks and not self._run.status.is_final:
            self._tell("(waiting for the first message…)")
        elif self._armed_s and time.monotonic() - self._armed_s > ARMED_S:
            self._disarm()

    def _draw_head(self, now_ms: int) -> Text:
        run = self._run
        frame = int(now_ms / 1000 / FRAME_S)
        sign, color = find_sign(run, frame)
        colors = dict(self.app.theme_variables)
        head = Text()
        head.append(f"{sign} ", style=colors.get(color, "dim"))
        outlook = RowOptions(120, now_ms, frame, find_window=self.app.link.crew.session_runs.find_window, colors=colors)
        about, figures = Text(name_run(run), style="bold"), render_figures(run, outlook)
        # The description is shortened in favour of the figures, but not below LEAST_ABOUT.
        room = self.query_one("#head").size.width - 2 - head.cell_len - figures.cell_len
        about.truncate(max(LEAST_ABOUT, room), overflow="ellipsis")
        head.append_text(about).append_text(figures)
        tags = [clean_line(run.agent, 60) if run.description else run.id, name_status(run)]
        if run.status is Status.RUNNING:
            activity = self.app.link.subagent_streams.activity(run.id)
            # The start of the answer is not repeated here because it is visible below.
            tags.append("answering" if activity.opening and not activity.tools else describe_activity(run, activity))
        if (retry := self._talk.retry) is not None:
            tags.append(f"retry {retry.attempt} of {retry.max_attempts}: {clean_line(retry.error, 120)}")
        tags += [f"branch {clean_line(run.branch, 60)}"] if run.branch else []
        if run.outcome is not None and run.outcome.receipts is not None:
            verdict, files = run.outcome.verification, len(run.outcome.receipts.files)
            tags += [describe_verdict(verdict)] if verdict != "not verified" else []
            tags += [f"{files} file{'s' * (files != 1)} changed"] if files else []
        if run.outcome is not None and run.outcome.error:
            tags.append(clean_line(run.outcome.error, 200))
        head.append(f"\n↳ {' · '.join(tags)}", style="dim")
        return head

    def action_close(self) -> None:
        self.dismiss()

    def action_read(self, way: Way, step: int) -> None:
        """Scroll the conversation; scrolling up stops following the end."""
        self._disarm()
        self._reading.move(way, step)

    def action_open_all(self) -> None:
        """Expand or collapse all blocks."""
        self._disarm()
        self.query_one(Conversation).open_all()

    def action_compose_words(self) -> None:
        """Open the input line for a message to the run."""
        self._disarm()
        if self._run.status.is_final:
            self._tell("the agent has finished; ask the main agent to resume it")
        else:
            self.query_one(PurposeLine).open("message to this agent", self._say)

    def action_search(self) -> None:
        """Open the input line for a search."""
        self._disarm()
        self.query_one(PurposeLine).open("search for", self._find)

    def action_next(self, step: int) -> None:
        """Go to the next or previous search result."""
        self._disarm()
        self._tell(self._reading.go_found(step) if self._needle else f"press {self._key('search')} to search first")

    def action_stop(self) -> None:
        """Ask for confirmation on the first press, stop the run on the second."""
        if self._run.status.is_final:
            self._tell("the agent has finished")
        elif self._armed_s:
            self.app.link.crew.session_runs.stop(self._run.id)
            self._disarm()
            self._tell("stopping")
        else:
            self._armed_s = time.monotonic()
            self._tell(f"{self._key('stop')} again: stop it and its subagents")

    def _find(self, text: str) -> None:
        self._needle = text
        self._disarm()
        self._tell(f"{self._reading.find(text)}: {clean_line(text, 40)}" if text.strip() else "")

    def _say(self, text: str) -> None:
        if text.strip():
            is_sent = self.app.link.crew.session_runs.steer(self._run.id, text)
            self._sent += [text] if is_sent else []
            self._tell(
                "queued: the agent reads it before its next reply" if is_sent else "not sent: the agent has finished"
            )

    def _disarm(self) -> None:
        if self._armed_s or self._notice:
            self._armed_s = 0.0
            self._tell("")

    def _tell(self, text: str) -> None:
        if text != self._notice:
            self._notice = text
            self.query_one("#foot", Static).update(text or self._help)
