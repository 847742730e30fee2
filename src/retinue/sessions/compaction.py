"""Compaction: decides when a context is too long and where to cut it, and summarises that part or an abandoned branch.

Rules and result format are pi's. Must not know how a model is called or how the result is stored.
"""

import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from msgspec import UNSET, Struct
from msgspec.structs import replace

from retinue.core.errors import CompactionFailed
from retinue.core.jsonline import encode_json
from retinue.core.messages import (
    AssistantMessage,
    BashExecutionMessage,
    BranchSummaryMessage,
    CompactionSummaryMessage,
    CustomMessage,
    ImageContent,
    Message,
    SystemMessage,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
    join_text,
)
from retinue.sessions.entry import Entry
from retinue.sessions.summary import SYSTEM_PROMPT, render_branch_prompt, render_prompt, shorten
from retinue.sessions.view import Context, replay_system, to_messages

CHARS_PER_TOKEN: Final = 4
IMAGE_CHARS: Final = 4800

_SPAN_STARTS: Final = (
    UserMessage,
    BashExecutionMessage,
    CustomMessage,
    BranchSummaryMessage,
    CompactionSummaryMessage,
)

Summarise = Callable[[str, str], Awaitable[AssistantMessage]]
"""Asks a model: (system prompt, user prompt) → reply. Prompt caching does not pay off for these requests."""


class CompactionConfig(Struct, frozen=True):
    enabled: bool = True
    """Compact automatically."""
    reserve_tokens: int = 16_384
    """Compact when fewer tokens than this are left."""
    keep_recent_tokens: int = 20_000
    """Approximate number of recent tokens that are kept unchanged."""

    def fit(self, window: int, head_tokens: int = 0) -> "CompactionConfig":
        """Adapt the numbers to a context window of `window` tokens, `head_tokens` of which are system prompt and tools.

        The default reserve takes at most a quarter of the window; a configured one leaves at least a quarter for the
        conversation. Kept messages take at most half of the rest, so that there is room for a summary.
        """
        is_usual = self.reserve_tokens == _USUAL.reserve_tokens
        most = window // 4 if is_usual else max(window // 4, window - head_tokens - window // 4)
        reserve = min(self.reserve_tokens, most)
        keep = min(self.keep_recent_tokens, max(0, (window - reserve - head_tokens) // 2))
        if (reserve, keep) == (self.reserve_tokens, self.keep_recent_tokens):
            return self
        return replace(self, reserve_tokens=reserve, keep_recent_tokens=keep)


_USUAL = CompactionConfig()


class Preparation(Struct, frozen=True):
    """What a compaction will summarise and keep."""

    first_kept_entry_id: str | None
    """None: keep nothing."""
    to_summarise: list[Message]
    span_prefix: list[Message]
    """The start of the user's last request, if the cut falls in the middle of the work on it."""
    tokens_before: int
    previous_summary: str
    read_files: frozenset[str]
    modified_files: frozenset[str]
    kept_tokens: int


class Compaction(Struct, frozen=True):
    """A finished summary, with the fields of `Session.append_compaction`."""

    summary: str
    first_kept_entry_id: str | None
    tokens_before: int
    usage: Usage
    details: dict[str, list[str]]


def estimate_tokens(message: Message) -> int:
    """Estimate the tokens of a message, rather too many than too few."""
    return math.ceil(_count_chars(message) / CHARS_PER_TOKEN)


def _count_chars(message: Message) -> int:
    match message:
        case SystemMessage():
            sections = sum(len(text or "") for text in (message.sections or {}).values())
            tools = len(encode_json(message.tools_added)) if message.tools_added else 0
            return _count_content(message.content) + sections + tools
        case AssistantMessage():
            return sum(map(_count_block, message.content))
        case BashExecutionMessage():
            return len(message.command) + len(message.output)
        case BranchSummaryMessage() | CompactionSummaryMessage():
            return len(message.summary)
        case _:
            return _count_content(message.content)


def _count_content(content: str | Sequence[Any]) -> int:
    return len(content) if isinstance(content, str) else sum(map(_count_block, content))


def _count_block(block: TextContent | ImageContent | ThinkingContent | ToolCall) -> int:
    match block:
        case TextContent():
            return len(block.text)
        case ImageContent():
            return IMAGE_CHARS
        case ThinkingContent():
            return len(block.thinking)
        case ToolCall():
            return len(block.name) + len(encode_json(block.arguments))


def count_context_tokens(context: Context, head_tokens: int | None = None) -> int:
    """Count the tokens of a context: the provider's count for the last reply plus an estimate for later messages.

    Without a provider count, system prompt and tools are `head_tokens`, or are estimated from the session.
    """
    messages = context.messages
    for place in reversed(range(context.trusted_from, len(messages))):
        counted = _read_usage(messages[place])
        if counted:
            return counted + sum(map(estimate_tokens, messages[place + 1 :]))
    system = replay_system(messages) if head_tokens is None else None
    others = sum(estimate_tokens(message) for message in messages if type(message) is not SystemMessage)
    return others + (head_tokens or 0) + (estimate_tokens(system) if system is not None else 0)


def _read_usage(message: Message) -> int:
    if type(message) is not AssistantMessage or message.stop_reason in ("error", "aborted"):
        return 0
    usage = message.usage
    return usage.total_tokens or usage.input + usage.output + usage.cache_read + usage.cache_write


def needs_compaction(tokens: int, context_window: int, config: CompactionConfig) -> bool:
    return config.enabled and tokens > context_window - config.reserve_tokens


def prepare_compaction(context: Context, config: CompactionConfig, *, keep_recent: bool = True) -> Preparation | None:
    """Choose where to cut; None when there is nothing to summarise.

    `keep_recent=False` summarises everything, for when the messages to keep are too long themselves.
    """
    messages = context.messages
    start = 0 if context.compaction is None else _count_head(context)
    cut = find_cut(messages, start, config.keep_recent_tokens) if keep_recent else len(messages)
    span = _find_span_start(messages, start, cut)
    history = _drop_system(messages[start:span])
    prefix = _drop_system(messages[span:cut])
    if not history and not prefix:
        return None
    read_files, modified_files = collect_files(context, [*history, *prefix])
    previous = "" if context.compaction is None else context.compaction.summary
    return Preparation(
        first_kept_entry_id=context.entry_ids[cut] if cut < len(messages) else None,
        to_summarise=history,
        span_prefix=prefix,
        tokens_before=count_context_tokens(context),
        previous_summary=previous if isinstance(previous, str) else "",
        read_files=read_files,
        modified_files=modified_files,
        kept_tokens=sum(map(estimate_tokens, _drop_system(messages[cut:]))),
    )


def find_cut(messages: Sequence[Message], start: int, keep_tokens: int) -> int:
    """Return the index of the first message to keep: about `keep_tokens` from the end, never a tool result."""
    points = [place for place in range(start, len(messages)) if _is_cut_point(messages[place])]
    if not points:
        return start
    kept = 0
    for place in reversed(range(start, len(messages))):
        tokens = estimate_tokens(messages[place])
        kept += tokens
        if tokens and kept >= keep_tokens:
            return next((point for point in points if point >= place), points[-1])
    return points[0]


def _count_head(context: Context) -> int:
    # The compaction entry produces one or two messages: the summary, preceded by the system checkpoint if there is one.
    identity = context.entry_ids[0] if context.entry_ids else None
    return next((n for n, entry_id in enumerate(context.entry_ids) if entry_id != identity), len(context.entry_ids))


def _is_cut_point(message: Message) -> bool:
    return isinstance(message, (*_SPAN_STARTS, AssistantMessage))


def _find_span_start(messages: Sequence[Message], start: int, cut: int) -> int:
    if cut >= len(messages) or isinstance(messages[cut], _SPAN_STARTS):
        return cut
    return next((place for place in reversed(range(start, cut)) if isinstance(messages[place], _SPAN_STARTS)), cut)


def _drop_system(messages: Iterable[Message]) -> list[Message]:
    return [message for message in messages if type(message) is not SystemMessage]


def collect_files(context: Context, messages: Iterable[Message]) -> tuple[frozenset[str], frozenset[str]]:
    """Return files only read and files modified, from these messages and from the previous summary."""
    read: set[str] = set()
    modified: set[str] = set()
    previous = context.compaction
    if previous is not None and previous.from_hook in (UNSET, None, False):
        earlier = read_details(previous.details)
        read.update(earlier[0])
        modified.update(earlier[1])
    known = list(messages)
    results = {each.tool_call_id: each.details for each in known if type(each) is ToolResultMessage}
    for message in known:
        if type(message) is AssistantMessage:
            list_files(message, read, modified, results)
    return frozenset(read - modified), frozenset(modified)


def list_files(
    message: AssistantMessage, read: set[str], modified: set[str], details: Mapping[str, Any] = MappingProxyType({})
) -> None:
    """Add the files that a reply's calls read and modify; `details` of tool results hold arguments changed by hooks."""
    for call in message.calls:
        path = _read_arguments(call, details.get(call.id)).get("path")
        if isinstance(path, str) and path:
            {"read": read, "write": modified, "edit": modified}.get(call.name, set[str]()).add(path)


def _read_arguments(call: ToolCall, details: Any) -> dict[str, Any]:
    """Return the arguments that a call was really made with, after hooks."""
    change = details.get("modifiedInput") if isinstance(details, dict) else None
    given = change.get("args") if isinstance(change, dict) else None
    return given if isinstance(given, dict) else call.arguments


def read_details(details: Any) -> tuple[list[str], list[str]]:
    known = details if isinstance(details, dict) else {}
    return _read_names(known.get("readFiles")), _read_names(known.get("modifiedFiles"))


def _read_names(value: Any) -> list[str]:
    return [name for name in value if isinstance(name, str)] if isinstance(value, list) else []


async def compact(
    preparation: Preparation, summarise: Summarise, instructions: str = "", most_chars: int | None = None
) -> Compaction:
    """Have the model write the summary, from at most `most_chars` characters of the conversation.

    Raises CompactionFailed if there is no summary or it is not shorter; nothing has changed then.
    """
    plan = preparation
    usage = Usage()
    summary = plan.previous_summary
    if plan.to_summarise or not plan.span_prefix:
        prompt = render_prompt("history", plan.to_summarise, plan.previous_summary, instructions, most_chars)
        summary, usage = await ask_summary(summarise, prompt)
    if plan.span_prefix:
        prompt = render_prompt("prefix", plan.span_prefix, "", instructions, most_chars)
        prefix, spent = await ask_summary(summarise, prompt)
        usage += spent
        summary = f"{summary or 'Nothing happened before.'}\n\n---\n\n## Current request, first part\n\n{prefix}"
    _check_smaller(plan, summary)
    read_files, modified_files = sorted(plan.read_files), sorted(plan.modified_files)
    summary += render_files(read_files, modified_files)
    details = {"readFiles": read_files, "modifiedFiles": modified_files}
    return Compaction(summary, plan.first_kept_entry_id, plan.tokens_before, usage, details)


def leave_out(preparation: Preparation, reason: str, most_chars: int) -> Compaction:
    """Build a note to replace a summary that failed: what was dropped, why, and what the user had asked for."""
    plan = preparation
    gone = [*plan.to_summarise, *plan.span_prefix]
    asked = [text for message in gone if type(message) is UserMessage and (text := join_text(message.content))]
    summary = (
        f"There was no room for the older part of this conversation: {len(gone)} messages are left out, and no summary "
        f"of them could be made ({shorten(reason, 300)}). Ask the user, or look again, for what is missing."
    )
    if plan.previous_summary:
        summary += f"\n\nWhat happened before them:\n\n{shorten(plan.previous_summary, most_chars // 2)}"
    if asked:
        lines = [f"- {shorten(text, max(200, most_chars // 6))}" for text in asked[-3:]]
        summary += "\n\n" + "\n".join(("What the user said in them last:", *lines))
    read_files, modified_files = sorted(plan.read_files), sorted(plan.modified_files)
    details = {"readFiles": read_files, "modifiedFiles": modified_files}
    summary += shorten(render_files(read_files, modified_files), most_chars // 4)
    return Compaction(summary, plan.first_kept_entry_id, plan.tokens_before, Usage(), details)


async def ask_summary(summarise: Summarise, prompt: str) -> tuple[str, Usage]:
    """Ask the model for a summary; returns it with its usage. Raises CompactionFailed."""
    reply = await summarise(SYSTEM_PROMPT, prompt)
    if reply.stop_reason in ("error", "aborted"):
        raise CompactionFailed(f"the summary failed: {reply.error_message or reply.stop_reason}")
    if reply.calls:
        raise CompactionFailed("the model called a tool instead of writing the summary")
    if not reply.text.strip():
        raise CompactionFailed("the model wrote an empty summary")
    note = "\n\n[the summary was cut off here, at the model's output limit]" if reply.stop_reason == "length" else ""
    return reply.text.strip() + note, reply.usage


def _check_smaller(plan: Preparation, summary: str) -> None:
    before = sum(map(_count_chars, [*plan.to_summarise, *plan.span_prefix])) + len(plan.previous_summary)
    if len(summary) >= before:
        raise CompactionFailed(f"the summary is no shorter ({len(summary)} characters) than what it sums up ({before})")


def render_files(read_files: list[str], modified_files: list[str]) -> str:
    """Render the file lists at the end of a summary; empty without files."""
    return _render_names("read-files", read_files) + _render_names("modified-files", modified_files)


def _render_names(tag: str, names: list[str]) -> str:
    return f"\n\n<{tag}>\n" + "\n".join(names) + f"\n</{tag}>" if names else ""


PREAMBLE: Final = "The user left this branch of the conversation for an earlier point. Notes on the branch:\n\n"
_SUMMARIES: Final = ("compaction", "branch_summary")
_NEARLY: Final = 0.9
"""An earlier summary that does not fit is still included below this fraction of the room: it stands for many messages.
"""


class BranchSummaryInput(Struct, frozen=True):
    """The input of a branch summary."""

    messages: list[Message]
    """The latest messages that fit."""
    read_files: list[str]
    modified_files: list[str]


class BranchSummary(Struct, frozen=True):
    """A finished summary, with the fields of `Session.append_branch_summary`."""

    summary: str
    usage: Usage
    details: dict[str, list[str]]


def has_words(entries: Iterable[Entry]) -> bool:
    return any(_list_words(entry) for entry in entries)


def prepare_parting(entries: Sequence[Entry], room_tokens: int) -> BranchSummaryInput:
    """Choose the input of a branch summary: always the last messages, earlier ones if they fit.

    The file lists cover all entries.
    """
    kept: list[list[Message]] = []
    used = 0
    for entry in reversed(entries):
        words = _list_words(entry)
        tokens = sum(map(estimate_tokens, words))
        if used + tokens > room_tokens and used:
            if entry.type in _SUMMARIES and used < room_tokens * _NEARLY:
                kept.append(words)
            break
        kept.append(words)
        used += tokens
    read_files, modified_files = _collect_files(entries)
    return BranchSummaryInput([message for words in reversed(kept) for message in words], read_files, modified_files)


async def sum_up(
    parting: BranchSummaryInput, summarise: Summarise, instructions: str = "", most_chars: int | None = None
) -> BranchSummary:
    """Have the model write the branch summary, from at most `most_chars` characters. Raises CompactionFailed."""
    text, usage = await ask_summary(summarise, render_branch_prompt(parting.messages, instructions, most_chars))
    files = render_files(parting.read_files, parting.modified_files)
    details = {"readFiles": parting.read_files, "modifiedFiles": parting.modified_files}
    return BranchSummary(f"{PREAMBLE}{text}{files}", usage, details)


def _list_words(entry: Entry) -> list[Message]:
    """Return the messages of an entry without tool results, which are long and follow from the calls."""
    return [message for message in to_messages(entry) if not isinstance(message, SystemMessage | ToolResultMessage)]


def _collect_files(entries: Iterable[Entry]) -> tuple[list[str], list[str]]:
    read: set[str] = set()
    modified: set[str] = set()
    for entry in entries:
        if entry.type == "branch_summary" and entry.from_hook in (UNSET, None, False):
            earlier = read_details(entry.details)
            read.update(earlier[0])
            modified.update(earlier[1])
        for message in to_messages(entry):
            if isinstance(message, AssistantMessage):
                list_files(message, read, modified)
    return sorted(read - modified), sorted(modified)
