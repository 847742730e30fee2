"""Split questions over subagents: which parts are worth one, the prompt of each, and the results.

This file must not know how a question is parsed or how reports are phrased.
"""

import re
from collections.abc import Iterator, Sequence
from html import unescape

from msgspec import Struct

from retinue.core.messages import AssistantMessage, CustomMessage, Message, ToolCall, ToolResultMessage, join_text
from retinue.core.model import ToolSpec
from retinue.core.pattern import late_pattern
from retinue.models.offline import cues
from retinue.models.offline.question import Kind, OfflineQuestion, parse_question
from retinue.models.offline.transcript import DELEGATING

START, FETCH = DELEGATING
_BLOCK = late_pattern(r"<task-notification>\n(.*?)\n</task-notification>", re.DOTALL)
_ELEMENT = late_pattern(r"<(task-id|status|summary|result)>(.*?)</\1>", re.DOTALL)
_RUN_ID = late_pattern(r"^Agent ID: (\S+)$", re.MULTILINE)
_STATUS = late_pattern(r"\bStatus: ([^|\n]+)")
_SUCCESSES = ("completed", "steered", "Done", "Wrapped up")


class RunNotice(Struct, frozen=True):
    """A notification that a run has finished."""

    run_id: str
    status: str
    summary: str
    preview: str


class DelegatedPart(Struct, frozen=True):
    """One part of a question, and the run that answers it."""

    prompt: str
    run_id: str
    """Empty if it was not started."""
    notice: RunNotice | None
    result: str | None
    """The fetched result, with its header; if the run was not started, the reason."""

    @property
    def question(self) -> str:
        """The prompt without the appended topic."""
        return cues.ABOUT.sub("", self.prompt).strip()

    @property
    def is_settled(self) -> bool:
        """Whether no further result will arrive by itself."""
        return not self.run_id or self.notice is not None or self.result is not None

    @property
    def status(self) -> str:
        """How it ended, in the words of the tools; empty while it runs."""
        if not self.run_id:
            return "not started"
        found = _STATUS.search(self.result.partition("\n\n")[0]) if self.result else None
        return found.group(1).strip() if found else (self.notice.status if self.notice else "")

    @property
    def is_success(self) -> bool:
        """Whether the run completed and its report is usable."""
        return bool(self.run_id) and self.status.startswith(_SUCCESSES)

    @property
    def report(self) -> str:
        """The complete report, else the preview in the notification."""
        if self.run_id and self.result is not None and self.result.startswith("Agent: "):
            return self.result.partition("\n\n")[2]
        # If the result is no longer available, the notification's preview is used.
        return self.notice.preview if self.notice is not None else self.result or ""


class DelegationRound(Struct, frozen=True):
    """The delegated parts of one question."""

    start: int
    """Index of the message with the calls."""
    parts: tuple[DelegatedPart, ...]
    is_answered: bool

    @property
    def is_started(self) -> bool:
        return any(part.run_id for part in self.parts)

    @property
    def is_settled(self) -> bool:
        return all(part.is_settled for part in self.parts)


class DelegatedParts(Struct, frozen=True):
    rounds: tuple[DelegationRound, ...]
    other_notices: tuple[RunNotice, ...]
    """New notifications about runs that are not, or no longer, part of a question here."""

    @property
    def due(self) -> list[DelegationRound]:
        """Rounds that can be answered and were not."""
        return [each for each in self.rounds if each.is_started and each.is_settled and not each.is_answered]

    @property
    def pending(self) -> list[DelegationRound]:
        """Rounds with runs that are not finished."""
        return [each for each in self.rounds if not each.is_settled]

    def find(self, start: int) -> DelegationRound | None:
        """The round for the question at this message index."""
        return next((each for each in self.rounds if each.start > start), None)


def read_delegated(messages: Sequence[Message]) -> DelegatedParts:
    """Find the delegated parts and their results in the messages."""
    starts: list[tuple[int, list[ToolCall]]] = []
    fetches: dict[str, str] = {}
    results: dict[str, tuple[str, bool]] = {}
    fetched: dict[str, str] = {}
    notices: list[tuple[int, RunNotice]] = []
    ended: dict[str, int] = {}
    """Index of the first message with the result of a run."""
    last_reply = -1
    for index, message in enumerate(messages):
        if isinstance(message, AssistantMessage):
            calls = [call for call in message.calls if call.name == START]
            starts += [(index, calls)] if calls else []
            fetches |= {call.id: str(call.arguments.get("agent_id")) for call in message.calls if call.name == FETCH}
            last_reply = index if not message.calls and message.stop_reason == "stop" else last_reply
        elif isinstance(message, ToolResultMessage):
            results[message.tool_call_id] = (join_text(message.content), message.is_error)
            if (run_id := fetches.get(message.tool_call_id)) is not None:
                fetched[run_id] = join_text(message.content)
                ended.setdefault(run_id, index)
        elif isinstance(message, CustomMessage):
            for notice in parse_notices(join_text(message.content)):
                notices.append((index, notice))
                ended.setdefault(notice.run_id, index)
    told = {notice.run_id: notice for _, notice in notices}
    rounds: list[DelegationRound] = []
    for start, calls in starts:
        parts: list[DelegatedPart] = []
        for call in calls:
            text, is_error = results.get(call.id, ("", True))
            found = None if is_error else _RUN_ID.search(text)
            run_id = found.group(1) if found else ""
            result = fetched.get(run_id) if found else text
            if call.id in results:
                parts.append(DelegatedPart(str(call.arguments.get("prompt", "")), run_id, told.get(run_id), result))
        is_answered = start < last_reply and all(
            not part.run_id or ended.get(part.run_id, last_reply) < last_reply for part in parts
        )
        rounds.append(DelegationRound(start, tuple(parts), is_answered))
    open_ids = {part.run_id for each in rounds if not each.is_answered for part in each.parts}
    other_notices = [notice for index, notice in notices if index > last_reply and notice.run_id not in open_ids]
    return DelegatedParts(tuple(rounds), tuple(other_notices))


def parse_notices(text: str) -> Iterator[RunNotice]:
    for block in _BLOCK.findall(text):
        found = {name: unescape(value) for name, value in _ELEMENT.findall(block)}
        if found.get("task-id"):
            yield RunNotice(
                found["task-id"], found.get("status", ""), found.get("summary", ""), found.get("result", "").strip()
            )


AGENT = "Explore"
MAX_TASKS = 5
_SEARCHED = (Kind.WHERE, Kind.HOW, Kind.USES, Kind.FILE)
"""Kinds that need their own searches; the others read the same few files."""
_FIXED = {Kind.OVERVIEW: "Describe the project", Kind.RUN: "Find the commands"}
_VERBS = {
    Kind.WHERE: "Find",
    Kind.HOW: "Trace",
    Kind.USES: "Find uses of",
    Kind.FILE: "Outline",
    Kind.FACT: "Look up",
}
_FACETS = (
    "What does this project do?",
    "What are the entry points?",
    "How do I run the tests?",
    "Which dependencies does it have?",
)


def to_start_call(prompt: str, call_id: str, model: str) -> ToolCall:
    """The call that starts an agent, with the same offline model, so that nothing leaves the machine."""
    description = describe(parse_question(prompt))
    arguments = {"subagent_type": AGENT, "description": description, "prompt": prompt, "model": model}
    return ToolCall(call_id, START, arguments)


def can_delegate(tools: Sequence[ToolSpec]) -> bool:
    """Whether subagents can be started."""
    specs = {tool.name: tool for tool in tools}
    return {START, FETCH} <= specs.keys() and re.search(rf"\b{AGENT}\b", specs[START].description) is not None


def split_work(text: str, questions: Sequence[OfflineQuestion]) -> list[str]:
    """A prompt for each part that is worth a subagent; empty if one agent is enough."""
    if any(question.change or question.kind is Kind.CHAT for question in questions):
        return []
    if len(questions) > 1:
        is_worth = sum(question.kind in _SEARCHED for question in questions) >= 2
        return [to_prompt(question) for question in questions[:MAX_TASKS]] if is_worth else []
    if sides := cues.COMPARE.search(text):
        return [f"How does {side.strip(' ,')} work?" for side in sides.groups() if side]
    return list(_FACETS) if cues.WHOLE.search(text) else []


def to_prompt(question: OfflineQuestion) -> str:
    """The question with all context needed to understand it alone."""
    text = question.text.strip().rstrip(" ?.!,;")
    text = text[:1].upper() + text[1:] + ("?" if cues.ASKING.match(text) else ".")
    about: list[str] = []
    marked = [(name, f"`{name}`") for name in (*question.symbols, *question.phrases)]
    bare = [(name, name) for name in (*question.paths, *(concept.word for concept in question.concepts))]
    for name, written in (*marked, *bare):
        if name.lower() not in f"{text} {' '.join(about)}".lower():
            about.append(written)
    return f"{text} (This is about {', '.join(about)}.)" if about else text


def describe(question: OfflineQuestion) -> str:
    """Three to five words for a list."""
    if question.kind in _FIXED:
        return _FIXED[question.kind]
    names = [*question.symbols, *question.paths, *question.phrases]
    known = {name.lower() for name in names}
    names += [concept.word for concept in question.concepts if concept.word.lower() not in known]
    verb = _VERBS[question.kind].split()
    words = [*verb, *names[: max(1, 4 - len(verb))]]
    return " ".join(words if len(words) > 2 else [*words, "in", "code"])[:60]
