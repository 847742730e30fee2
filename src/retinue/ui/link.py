"""Connects the screen with a session: opens it and applies its events to the state.

Widgets read changing state from the link, never from the session. The link must not know widgets.
"""

import asyncio
from contextlib import AsyncExitStack
from importlib import import_module
from typing import TYPE_CHECKING

from msgspec import UNSET

from retinue.app import Request
from retinue.core.errors import RetinueError
from retinue.core.events import Event, RunFinished, RunStarted, TurnFinished
from retinue.core.messages import Cost, Message, Usage
from retinue.ui.conversation_blocks import ConversationBlocks, SubagentStreams
from retinue.ui.state import State, apply

if TYPE_CHECKING:
    from retinue.app import Retinue
    from retinue.views.history import HistoryReader
    from retinue.views.session_cost import Stats

LONG = 2000
"""Sessions with at least this many entries show their end first, while the rest is read in a thread."""
READ_AFTER_S = 0.3
"""Seconds to wait before the rest is read."""


class ScreenLink:
    """An open session and its state on screen."""

    def __init__(self, request: Request) -> None:
        self.request = request
        """Can be changed before `open`."""
        self._stack = AsyncExitStack()
        self._crew: Retinue | None = None
        self._notes: list[str] = []
        self.state = State("", ConversationBlocks())
        self.version = 0
        """Grows with every event."""
        self.subagent_streams = SubagentStreams(self._count_turn)
        self.branch = ""
        """The git branch, read after each turn."""

    async def open(self) -> None:
        """Open the session. Raises RetinueError."""
        # Import in a thread, so that the screen already accepts keys.
        await asyncio.to_thread(import_module, "retinue.app.retinue")
        from retinue.app import Retinue

        crew = Retinue(request=self.request, say=self._notes.append)
        await self._stack.enter_async_context(crew)
        self._crew = crew
        self._stack.enter_context(crew.questions.attend())
        crew.listen(self._hear)
        self.reload()

    async def close(self) -> None:
        """Close the session; unfinished runs can be resumed."""
        self._crew = None
        await self._stack.aclose()

    @property
    def is_open(self) -> bool:
        return self._crew is not None

    @property
    def crew(self) -> "Retinue":
        """The session's Retinue, for commands. Raises RetinueError before it is open."""
        if self._crew is None:
            raise RetinueError("the agent is not ready yet")
        return self._crew

    @property
    def working(self) -> int:
        """The number of working subagents."""
        runs = self._crew.session_runs.runs if self._crew is not None else ()
        return sum(not run.status.is_final for run in runs)

    @property
    def usage(self) -> Usage:
        """What the main agent and all its runs have used in this session."""
        return sum((run.usage for run in self.crew.session_runs.runs), self.state.usage)

    def describe_run(self, run_id: str) -> str:
        """The description of a run; empty if it has none or is unknown."""
        run = self.crew.session_runs.find(run_id) if self.is_open else None
        return "" if run is None else run.description

    def _count_turn(self) -> None:
        """A subagent has replied, so the usage has grown."""
        self.version += 1

    def reload(self) -> None:
        """Rebuild the state, for another session or branch."""
        crew = self.crew
        messages, is_all = crew.history.list_recent(LONG)
        self.state = State(crew.run_id, ConversationBlocks(crew.run_id, messages, is_whole=is_all))
        self.state.questions = [*crew.questions.waiting, *crew.list_questions()]
        if len(crew.history) < LONG:
            _take_stats(self.state, crew.history.count())
        else:
            self._read_later(self.state, crew.history.open_backlog(), len(messages))
        self._show_notes()
        self.read_branch()
        self.version += 1

    def read_branch(self) -> None:
        """Read the branch again, because it may have changed."""
        self.branch = self.crew.branch

    def _show_notes(self) -> None:
        for note in self._notes:
            if not self._is_welcome(note):
                self.state.talk.note(note, "warning")
        self._notes.clear()

    def _is_welcome(self, note: str) -> bool:
        """Whether the welcome of an empty conversation says the same."""
        crew = self.crew
        return not self.state.talk.blocks and crew.selection.is_unset and note.startswith(f"using {crew.model.ref}, ")

    def _read_later(self, state: State, backlog: "HistoryReader", shown: int) -> None:
        """Read the start of a long session in the background; its end is already shown."""
        loop = asyncio.get_running_loop()

        def take(done: "asyncio.Future[tuple[list[Message], Stats]]") -> None:
            if done.cancelled() or done.exception() is not None:
                state.talk.put_earlier(())
            else:
                messages, stats = done.result()
                state.talk.put_earlier(messages[: len(messages) - shown])
                _take_stats(state, stats)
                backlog.settle()
            self.version += 1

        def begin() -> None:
            if self._crew is not None:
                loop.run_in_executor(None, backlog.run).add_done_callback(take)

        # Let the end be drawn first.
        loop.call_later(READ_AFTER_S, begin)

    def note(self, text: str, tone: str = "info") -> None:
        """Show a message to the user in the conversation."""
        if self._crew is None:
            self._notes.append(text)  # there is no conversation yet
            return
        self.state.talk.note(text, tone)
        self.version += 1

    def touch(self) -> None:
        """Record a change of the conversation that has no event."""
        self.state.talk.version += 1
        self.version += 1

    def _hear(self, event: Event) -> None:
        apply(self.state, event)
        if event.run_id == self.state.run_id:
            self._show_notes()
            if isinstance(event, TurnFinished) and self._crew is not None:
                self.read_branch()
        elif self._crew is not None:
            self.subagent_streams.hear(event, self._crew.session_runs)
            if isinstance(event, RunStarted | RunFinished):
                self.state.talk.touch_agent(event.run_id)
        self.version += 1


def _take_stats(state: State, stats: "Stats") -> None:
    """Add what the session has used before."""
    used = stats.tokens
    state.usage += Usage(used.input, used.output, used.cache_read, used.cache_write, used.total, Cost(total=stats.cost))
    context = stats.context_usage
    if not state.context_tokens and context is not UNSET:
        state.context_tokens = context.tokens or 0
