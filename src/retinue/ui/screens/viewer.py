"""The conversation of one run, live, over the main screen: read it, search it, say something to it, stop it."""

import time
from typing import TYPE_CHECKING

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Static

from retinue.core.run import Run
from retinue.ui.formats import FRAME_S, clean_line
from retinue.ui.talk import Talk
from retinue.ui.tree import Outlook, describe_activity, find_sign, render_figures
from retinue.ui.widgets.conversation import Conversation
from retinue.ui.widgets.line import PurposeLine

if TYPE_CHECKING:
    from retinue.ui.app import RetinueApp

ARMED_S = 3.0
"""How long the first `x` counts."""
_HELP = "↑↓ scroll · / search · enter say something · x x stop · esc close"


class RunViewer(ModalScreen[None]):
    """Follows one run from its first message."""

    DEFAULT_CSS = """
    RunViewer { align: center middle; background: $background 60%; }
    RunViewer > #frame { width: 90%; height: 80%; min-height: 5; border: round $accent; background: $background; }
    RunViewer #head { height: auto; max-height: 3; padding: 0 1; }
    RunViewer #foot { height: 1; padding: 0 1; color: $text-muted; }
    """
    BINDINGS = [
        Binding("escape,q", "close", "close", show=False),
        Binding("up,k", "scroll(-1)", "up", show=False, id="tui.select.up"),
        Binding("down,j", "scroll(1)", "down", show=False, id="tui.select.down"),
        Binding("pageup,shift+up", "page(-1)", "page up", show=False, id="tui.select.pageUp"),
        Binding("pagedown,shift+down", "page(1)", "page down", show=False, id="tui.select.pageDown"),
        Binding("home", "edge(-1)", "top", show=False),
        Binding("end", "edge(1)", "end", show=False),
        Binding("ctrl+o", "open_all", "expand", show=False),
        Binding("enter", "compose_words", "say", show=False),
        Binding("slash", "search", "search", show=False),
        Binding("n", "next(1)", "next match", show=False),
        Binding("N", "next(-1)", "previous match", show=False),
        Binding("x", "stop", "stop", show=False),
    ]
    app: "RetinueApp"

    def __init__(self, run: Run) -> None:
        super().__init__()
        self._run = run
        self._talk = Talk(run.id)
        self._armed_s = 0.0
        self._notice = ""
        self._head = Text()
        self._needle = ""
        self._found = -1

    def compose(self) -> ComposeResult:
        """Head, conversation, a line to write in, foot."""
        with Vertical(id="frame"):
            yield Static("", id="head", markup=False)
            yield Conversation(self._talk, id="run-conversation")
            yield PurposeLine(id="line")
            yield Static(_HELP, id="foot", markup=False)

    def on_mount(self) -> None:
        """Read what was said, and follow what is said from now on."""
        self.query_one(Conversation).can_focus = True
        self.query_one(Conversation).focus()
        self.run_worker(self._follow(), exclusive=True)
        self.set_interval(FRAME_S, self.sync)

    async def _follow(self) -> None:
        lookout = self.app.link.crew.lookout
        self._talk = Talk(self._run.id, lookout.read_messages(self._run.id))
        self._talk.go_on(*self.app.link.overheard.find(self._run.id))
        self.query_one(Conversation).show(self._talk)
        async for event in lookout.follow(self._run.id):
            self._talk.apply(event)

    def sync(self) -> None:
        """Show what is new."""
        conversation = self.query_one(Conversation)
        conversation.sync()
        now_ms = round(time.time() * 1000)
        head = self._draw_head(now_ms)
        if head != self._head:
            self._head = head
            self.query_one("#head", Static).update(head)
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
        head.append(clean_line(run.agent, 60), style="bold")
        head.append(f"  {clean_line(run.description, 120)}")
        outlook = Outlook(120, now_ms, frame, find_window=self.app.link.crew.lookout.find_window, colors=colors)
        head.append_text(render_figures(run, outlook))
        tags = [run.id, str(run.status)]
        tags += [describe_activity(run)] if not run.status.is_final else []
        tags += [f"branch {clean_line(run.branch, 60)}"] if run.branch else []
        if run.outcome is not None and run.outcome.error:
            tags.append(clean_line(run.outcome.error, 200))
        head.append(f"\n↳ {' · '.join(tags)}", style="dim")
        return head

    def action_close(self) -> None:
        """Back to the main screen."""
        self.dismiss()

    def action_scroll(self, step: int) -> None:
        """By a line; scrolling up stops following."""
        self._disarm()
        conversation = self.query_one(Conversation)
        if step < 0:
            conversation.scroll_up(animate=False)
        else:
            conversation.scroll_down(animate=False)

    def action_page(self, step: int) -> None:
        """By a page."""
        self._disarm()
        conversation = self.query_one(Conversation)
        if step < 0:
            conversation.scroll_page_up(animate=False)
        else:
            conversation.scroll_page_down(animate=False)

    def action_edge(self, step: int) -> None:
        """To the beginning, or to the end, which is followed again."""
        self._disarm()
        conversation = self.query_one(Conversation)
        if step < 0:
            conversation.scroll_home(animate=False)
        else:
            conversation.anchor()

    def action_open_all(self) -> None:
        """Everything in full, or folded."""
        self._disarm()
        self.query_one(Conversation).open_all()

    def action_compose_words(self) -> None:
        """Open the line to say something."""
        self._disarm()
        if self._run.status.is_final:
            self._tell("it is finished: say it to the main agent, which can resume it")
            return
        self.query_one(PurposeLine).open("say", "say something to this agent")

    def action_search(self) -> None:
        """Open the line to search."""
        self._disarm()
        self.query_one(PurposeLine).open("search", "search for")

    def action_next(self, step: int) -> None:
        """Go to the next block in which the searched words are."""
        self._disarm()
        views = self.query_one(Conversation).find_views(self._needle)
        if not views:
            self._tell(f"not found: {clean_line(self._needle, 40)}" if self._needle else "search with / first")
            return
        self._found = (self._found + step) % len(views)
        conversation = self.query_one(Conversation)
        conversation.release_anchor()
        conversation.scroll_to_widget(views[self._found], animate=False, top=True)
        self._tell(f"{self._found + 1} of {len(views)}: {clean_line(self._needle, 40)}")

    def action_stop(self) -> None:
        """The first `x` asks, the second one stops."""
        if self._run.status.is_final:
            self._tell("it is finished")
        elif self._armed_s:
            self.app.link.crew.lookout.stop(self._run.id)
            self._disarm()
            self._tell("stopping")
        else:
            self._armed_s = time.monotonic()
            self._tell("x again stops it, and all it started")

    def on_purpose_line_sent(self, event: PurposeLine.Sent) -> None:
        """Use what was written in the line."""
        event.stop()
        self.query_one(Conversation).focus()
        if event.purpose == "search":
            self._needle, self._found = event.text, -1
            self.action_next(1)
        elif event.text.strip():
            is_heard = self.app.link.crew.lookout.steer(self._run.id, event.text)
            self._tell("said" if is_heard else "it is finished and does not hear any more")

    def on_purpose_line_closed(self, event: PurposeLine.Closed) -> None:
        """Back to reading."""
        event.stop()
        self.query_one(Conversation).focus()

    def _disarm(self) -> None:
        if self._armed_s or self._notice:
            self._armed_s = 0.0
            self._tell("")

    def _tell(self, text: str) -> None:
        if text != self._notice:
            self._notice = text
            self.query_one("#foot", Static).update(text or _HELP)
