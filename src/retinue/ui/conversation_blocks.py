"""A conversation as blocks: built from messages, updated by events. Used for the main agent and in the run viewer."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec import UNSET

from retinue.core import events as ev
from retinue.core.messages import (
    AssistantMessage,
    BashExecutionMessage,
    BranchSummaryMessage,
    CompactionSummaryMessage,
    CustomMessage,
    ImageContent,
    Message,
    TextContent,
    ThinkingContent,
    ToolResultMessage,
    UserMessage,
)
from retinue.core.model import Delta
from retinue.core.run import Run
from retinue.ui.blocks import (
    Block,
    CommandBlock,
    NoteBlock,
    ReplyBlock,
    ReportBlock,
    SummaryBlock,
    ToolBlock,
    UserBlock,
)
from retinue.ui.formats import clean_line
from retinue.ui.renderers.tool import describe_call
from retinue.views.runs import SessionRuns

OPENING_CHARS = 60
"""Characters of an answer that are shown in the activity of a run."""
ABOUT_CHARS = 40
"""Characters of a call's argument that are shown there."""
THINKING = "thinking"
_VERBS = {
    "read": ("reading", "reading {} files"),
    "bash": ("running command", "running {} commands"),
    "edit": ("editing", "editing {} files"),
    "write": ("writing", "writing {} files"),
    "grep": ("searching", "searching {} patterns"),
    "find": ("finding files", "finding files by {} patterns"),
    "ls": ("listing", "listing {} folders"),
}


@dataclass(frozen=True, slots=True)
class CurrentActivity:
    """What a run is doing at this moment."""

    tools: tuple[str, ...] = ()
    """The names of the running tools; a name may occur twice."""
    opening: str = ""
    """The start of the reply that is being streamed."""
    about: str = ""
    """The argument that describes the call, if one tool runs."""


NOTHING = CurrentActivity()


def describe_activity(run: Run, activity: CurrentActivity = NOTHING) -> str:
    """Describe what a run is doing."""
    if activity.tools:
        return ", ".join(_describe_tools(activity.tools, activity.about))
    if run.activity in ("", THINKING):
        return find_opening(activity.opening) or f"{THINKING}…"
    return ", ".join(_describe_tools([run.activity]))


def find_opening(text: str) -> str:
    """The start of an answer in one line."""
    lines = (line.strip().lstrip("#>*- ") for line in text.splitlines())  # without heading and list marks
    return clean_line(next((line for line in lines if line), ""), OPENING_CHARS)


def _describe_tools(names: Iterable[str], about: str = "") -> list[str]:
    words = []
    for name, count in Counter(names).items():
        one, many = _VERBS.get(name, (clean_line(name, 60), ""))
        if about:
            # `running npm test` instead of `running command`
            one = f"{one.split()[0] if name in _VERBS else one} {clean_line(about, ABOUT_CHARS)}"
        words.append(one if count == 1 else many.format(count) if many else f"{one} × {count}")
    return words


REPORT = "subagent-notification"
CANCELLED = "cancelled"
"""The error of a retry that the user stopped."""
TAIL = 400
"""Messages that become blocks at once: more than a user sees before scrolling."""


class ConversationBlocks:
    """The blocks of one conversation, in order. Blocks are only appended or changed in place."""

    def __init__(self, run_id: str = "", messages: Sequence[Message] = (), *, is_whole: bool = True) -> None:
        """`run_id`: only apply events of this run; empty for all. Of many messages only the last become blocks at
        once.

        If `is_whole` is False, earlier messages follow through `put_earlier`.
        """
        self.is_whole = is_whole
        self.run_id = run_id
        self.blocks: list[Block] = []
        self.version = 0
        """Grows with every change of a block."""
        self._calls: dict[str, ToolBlock] = {}
        self._live: ReplyBlock | None = None
        self._failed: ReplyBlock | None = None
        """The failed reply of the current attempt, which a retry replaces."""
        self.retry: ev.RetryScheduled | None = None
        """The retry that is pending or in progress."""
        self._agents: dict[str, ToolBlock] = {}
        """The last call that started each background agent."""
        self.outcomes = 0
        """Grows when the state of a background agent changes, whose call may be far above."""
        at = _find_turn(messages, len(messages) - TAIL)
        self.unread = list(messages[:at])
        """Messages before the first block; `recall` turns them into blocks."""
        for message in messages[at:]:
            self.add(message)

    def put_earlier(self, messages: Sequence[Message]) -> None:
        """Insert messages before all others."""
        self.unread[:0] = messages
        self.is_whole = True
        self.version += 1

    def recall(self, count: int = TAIL) -> int:
        """Turn at least `count` unread messages into blocks; returns the number of new blocks."""
        at = _find_turn(self.unread, len(self.unread) - count)
        earlier = ConversationBlocks(self.run_id)
        for message in self.unread[at:]:
            earlier.add(message)
        del self.unread[at:]
        self.blocks[:0] = earlier.blocks
        self._calls = {**earlier._calls, **self._calls}
        self._agents = {**earlier._agents, **self._agents}
        self.version += bool(earlier.blocks)
        return len(earlier.blocks)

    def apply(self, event: ev.Event) -> None:
        """Update the conversation with an event; ignores other runs and events that are not shown."""
        if self.run_id and event.run_id != self.run_id:
            return
        match event:
            case ev.MessageDelta():
                self._grow(event.delta)
            case ev.MessageStarted():
                self._open(event.message.model)
            case ev.MessageFinished():
                self.add(event.message)
            case ev.ToolStarted():
                self._begin(event)
            case ev.CallChanged() if (block := self._calls.get(event.call_id)) is not None:
                _note_changes(block, {"modifiedInput": {"by": event.by, "args": event.arguments}})
                self._touch(block)
            case ev.ToolProgress():
                self._update(event.call_id, event.content, event.details)
            case ev.ToolFinished():
                self._settle(event.result, event.duration_ms)
            case ev.RetryScheduled():
                self._plan_retry(event)
            case ev.RetryEnded():
                self._end_retry(event)
            case ev.AttemptStarted() | ev.RunFinished():
                self._failed = None
            case ev.Compacted():
                self._note_compaction(event)
            case ev.Warned():
                self._append(NoteBlock(event.text, "warning"))
            case _:
                pass

    def note(self, text: str, tone: Any = "info") -> None:
        """Append a message to the user."""
        self._append(NoteBlock(text, tone))

    def add(self, message: Message) -> None:
        """Append a complete message."""
        match message:
            case UserMessage():
                self._append(UserBlock(*_flatten(message.shown)))
            case AssistantMessage():
                self._close(message)
            case ToolResultMessage():
                self._settle(message, None)
            case CustomMessage(display=True):
                self._append(_to_block(message))
            case BashExecutionMessage():
                self._close_command(message)
            case CompactionSummaryMessage():
                self._append(SummaryBlock(message.summary, message.tokens_before))
            case BranchSummaryMessage():
                self._append(SummaryBlock(message.summary, kind="branch"))
            case _:
                pass

    def go_on(self, words: str, thoughts: str) -> None:
        """Add a reply that is already being streamed, with its text and thinking so far."""
        if words or thoughts:
            block = self._open()
            block.text, block.thinking = words, thoughts
            self._touch(block)

    def open_command(self, command: str, *, is_private: bool) -> CommandBlock:
        """Append a shell command that starts now; its message will complete it."""
        block = CommandBlock(command, is_private=is_private, is_live=True)
        self._append(block)
        return block

    def grow_command(self, block: CommandBlock, piece: str) -> None:
        """Append output of a shell command."""
        block.output += piece
        self._touch(block)

    def touch_agent(self, run_id: str) -> None:
        """Record that the state of a background agent has changed."""
        if (block := self._agents.get(run_id)) is not None:
            self._touch(block)
            self.outcomes += 1

    @property
    def last_reply(self) -> ReplyBlock | None:
        """The newest reply with text."""
        return next((b for b in reversed(self.blocks) if isinstance(b, ReplyBlock) and b.text.strip()), None)

    def _append(self, block: Block) -> None:
        self.blocks.append(block)
        self.version += 1

    def _touch(self, block: Block) -> None:
        block.touch()
        self.version += 1

    def _open(self, model: str = "") -> ReplyBlock:
        if self._live is None:
            self._live = ReplyBlock(is_live=True, model=model)
            self._append(self._live)
        return self._live

    def _plan_retry(self, event: ev.RetryScheduled) -> None:
        """Hide the failed reply: the retry replaces it."""
        self.retry = event
        if self._failed is not None:
            self._failed.is_hidden = True
            self._touch(self._failed)

    def _end_retry(self, event: ev.RetryEnded) -> None:
        """Say why in the last failed reply; a failed summary has none and is reported by its own event."""
        self.retry = None
        if (failed := self._failed) is not None and not event.success:
            tries = "1 retry" if event.attempt == 1 else f"{event.attempt} retries"
            gave_up = f"Gave up after {tries}: {event.error}"
            failed.error = gave_up if event.error != CANCELLED else f"Stopped before a retry: {failed.error}"
            failed.is_hidden = False
            self._touch(failed)

    def _grow(self, delta: Delta) -> None:
        self.retry = None
        piece = delta.delta if isinstance(delta.delta, str) else ""
        if delta.type == "text_delta":
            block = self._open()
            block.text += piece
        elif delta.type == "thinking_delta":
            block = self._open()
            block.thinking += piece
        else:
            if delta.type == "text_start" and (block := self._open()).text:
                block.text += "\n"
            return
        self._touch(block)

    def _close(self, message: AssistantMessage) -> None:
        thinking = "\n\n".join(block.thinking for block in message.content if isinstance(block, ThinkingContent))
        error = message.error_message if isinstance(message.error_message, str) else ""
        is_aborted = message.stop_reason == "aborted"
        block, self._live = self._live, None
        has_words = message.text.strip() or thinking.strip() or error
        if block is None and has_words:
            block = ReplyBlock()
            self._append(block)
        if block is not None:
            block.text, block.thinking, block.model = message.text, thinking, message.model
            block.error, block.is_aborted, block.is_live = "" if is_aborted else error, is_aborted, False
            self._touch(block)
        self._failed = block if error and not is_aborted else None
        for call in message.calls:
            if call.id not in self._calls:
                self._add_call(ToolBlock(call.id, call.name, call.arguments))

    def _close_command(self, message: BashExecutionMessage) -> None:
        code = message.exit_code if isinstance(message.exit_code, int) else None
        waiting = (b for b in self.blocks if isinstance(b, CommandBlock) and b.is_live and b.command == message.command)
        block = next(waiting, None)
        if block is None:
            self._append(CommandBlock(message.command, message.output, code, message.exclude_from_context))
            return
        block.output, block.exit_code, block.is_live = message.output, code, False
        self._touch(block)

    def _add_call(self, block: ToolBlock) -> None:
        self._calls[block.call_id] = block
        self._append(block)

    def _begin(self, event: ev.ToolStarted) -> None:
        block = self._calls.get(event.call_id)
        if block is None:
            block = ToolBlock(event.call_id, event.name, event.arguments)
            self._add_call(block)
        block.status = "running"
        self._touch(block)

    def _update(self, call_id: str, content: list[Any], details: Any) -> None:
        block = self._calls.get(call_id)
        if block is not None and block.status == "running":
            block.output, block.images = _flatten(content)
            block.details = None if details is UNSET else details
            self._touch(block)

    def _settle(self, result: ToolResultMessage, duration_ms: int | None) -> None:
        block = self._calls.get(result.tool_call_id)
        if block is None:
            block = ToolBlock(result.tool_call_id, result.tool_name)
            self._add_call(block)
        elif block.status in ("done", "failed"):
            return
        block.output, block.images = _flatten(result.content)
        block.details = None if result.details is UNSET else result.details
        block.status = "failed" if result.is_error else "done"
        block.duration_ms = duration_ms
        if isinstance(block.details, dict) and block.details.get("status") == "background":
            self._agents[str(block.details.get("agentId"))] = block
        _note_changes(block, block.details)
        self._touch(block)

    def _note_compaction(self, event: ev.Compacted) -> None:
        if event.result is not None:
            tokens = event.result.get("tokensBefore")
            summary = str(event.result.get("summary", ""))
            self._append(SummaryBlock(summary, tokens if isinstance(tokens, int) else 0))
        elif event.error and not event.aborted:
            self._append(NoteBlock(f"The context could not be summarised: {event.error}", "warning"))


def _note_changes(block: ToolBlock, details: Any) -> None:
    """Record what hooks changed in a call, and show the arguments that were really used."""
    known = details if isinstance(details, dict) else {}
    parts = []
    for key, words in (("modifiedInput", "changed by"), ("modifiedOutput", "result changed by")):
        change = known.get(key)
        if isinstance(change, dict) and isinstance(change.get("by"), list):
            parts.append(f"{words} {', '.join(map(str, change['by']))}")
            if key == "modifiedInput" and isinstance(change.get("args"), dict):
                block.arguments = change["args"]
    block.changes = "; ".join(parts) or block.changes


def _find_turn(messages: Sequence[Message], at: int) -> int:
    """The index of the last user message up to `at`, so that calls and their results stay together."""
    while at > 0 and not isinstance(messages[at], UserMessage):
        at -= 1
    return max(0, at)


def _flatten(content: Any) -> tuple[str, int]:
    """The text of some content and the number of its images."""
    if isinstance(content, str):
        return content, 0
    texts = [block.text for block in content if isinstance(block, TextContent)]
    return "\n".join(texts), sum(isinstance(block, ImageContent) for block in content)


def _to_block(message: CustomMessage) -> Block:
    text, _ = _flatten(message.content)
    details = message.details
    if message.custom_type != REPORT or not isinstance(details, dict):
        return NoteBlock(text)
    others = details.get("others")
    rest = [item for item in others if isinstance(item, dict)] if isinstance(others, list) else []
    return ReportBlock([details, *rest], text)


_ENOUGH = 4 * OPENING_CHARS
"""Characters after which the start of an answer is known; some answers begin with blanks."""


@dataclass(slots=True)
class StreamedReply:
    """A reply while it is streamed."""

    words: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    opening: str = ""


class SubagentStreams:
    """Listens to working subagents and keeps their streamed replies and running tools."""

    def __init__(self, on_reply: Callable[[], None] = lambda: None) -> None:
        """`on_reply` is called when a reply begins and when it is complete."""
        self._on_reply = on_reply
        self._partials: dict[str, StreamedReply] = {}
        self._tools: dict[str, dict[str, tuple[str, str]]] = {}
        """Names of running tools and what describes their calls, by run and call."""

    def hear(self, event: ev.Event, session_runs: SessionRuns) -> None:
        """Start listening when a run starts; forget it when it ends."""
        if isinstance(event, ev.RunStarted):
            session_runs.overhear(event.run_id, self._take)
        elif isinstance(event, ev.RunFinished):
            self._partials.pop(event.run_id, None)
            self._tools.pop(event.run_id, None)

    def activity(self, run_id: str) -> CurrentActivity:
        """What a run is doing now. Cheap, because it is called many times a second."""
        partial, tools = self._partials.get(run_id), self._tools.get(run_id)
        if partial is None and not tools:
            return NOTHING
        calls = [*(tools or {}).values()]
        about = calls[0][1] if len(calls) == 1 else ""
        return CurrentActivity(tuple(name for name, _ in calls), "" if partial is None else partial.opening, about)

    def find(self, run_id: str) -> tuple[str, str]:
        """Text and thinking of the reply that a run is streaming; empty between replies."""
        partial = self._partials.get(run_id, StreamedReply())
        return "".join(partial.words), "".join(partial.thoughts)

    def _take(self, event: ev.Event) -> None:
        if isinstance(event, ev.MessageDelta):
            partial, piece = self._partials.setdefault(event.run_id, StreamedReply()), event.delta.delta
            if isinstance(piece, str) and event.delta.type == "text_delta":
                partial.words.append(piece)
                if len(partial.opening) < _ENOUGH:
                    partial.opening = (partial.opening + piece).lstrip()[:_ENOUGH]
            elif isinstance(piece, str) and event.delta.type == "thinking_delta":
                partial.thoughts.append(piece)
        elif isinstance(event, ev.ToolStarted):
            about = describe_call(event.name, event.arguments).removeprefix("$ ")
            self._tools.setdefault(event.run_id, {})[event.call_id] = (event.name, about[: 2 * ABOUT_CHARS])
        elif isinstance(event, ev.ToolFinished):
            self._tools.get(event.run_id, {}).pop(event.result.tool_call_id, None)
        elif isinstance(event, ev.MessageFinished | ev.MessageStarted):
            self._partials.pop(event.run_id, None)
            self._on_reply()
