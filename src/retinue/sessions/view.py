"""Build what the model sees from the entries of one branch. Pure: no files, no clock.

pi's rules: the latest compaction replaces what is before its first kept entry, the latest edit of an entry wins, and
system messages are merged into one prompt. Must not know how entries are stored.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec import UNSET, Struct, field

from retinue.core.errors import quote
from retinue.core.jsonline import encode_json
from retinue.core.messages import (
    AssistantMessage,
    BranchSummaryMessage,
    CompactionSummaryMessage,
    CustomMessage,
    Message,
    SystemMessage,
    TextContent,
    ToolResultMessage,
    UserMessage,
)
from retinue.core.transcript import interrupt_call
from retinue.sessions.entry import Entry, RepairedEntry, decode_message

TOOL_RESULT: Final = "retinue.tool_result"
"""Type of our custom entry for a tool result that arrived before the results that must precede it."""

_Editable = (UserMessage, AssistantMessage, ToolResultMessage, CustomMessage)


class Context(Struct):
    """The conversation up to one leaf."""

    messages: list[Message] = field(default_factory=list)
    entry_ids: list[str] = field(default_factory=list)
    """Parallel to `messages`: the source entry of each message; for a generated result, the entry of the call."""
    model: tuple[str, str] | None = None
    """Provider and id of the model last selected, or else last used."""
    thinking: str | None = None
    system: SystemMessage | None = None
    """All system messages merged into one: base text, named sections, tools."""
    compaction: Entry | None = None
    """The compaction that the context begins with."""
    trusted_from: int = 0
    """Messages from here on are later than the last compaction or edit; only their token counts are valid."""
    lost: tuple[str, ...] = ()
    """Descriptions of unreadable parts of the branch that are missing from the messages, for the user."""

    @property
    def sections(self) -> dict[str, str]:
        return {} if self.system is None or not self.system.sections else _drop_none(self.system.sections)

    @property
    def tools(self) -> list[dict[str, Any]]:
        """The tools declared to the model, as stored."""
        return [] if self.system is None or not self.system.tools_added else self.system.tools_added

    def copy(self) -> "Context":
        """Return a copy with its own lists."""
        return Context(
            list(self.messages),
            list(self.entry_ids),
            self.model,
            self.thinking,
            self.system,
            self.compaction,
            self.trusted_from,
            self.lost,
        )


def build_context(path: Sequence[Entry], is_settled: Callable[[str], bool] = lambda entry_id: True) -> Context:
    """Build the context of a branch, given from root to leaf.

    `is_settled` says whether an unanswered tool call in an entry will never get a result; such calls get a result here,
    the stored one if there is one.
    """
    context = Context()
    edits: dict[str, Any] = {}
    results: dict[str, tuple[str, ToolResultMessage]] = {}
    selected, later = select_entries(path)
    for entry in selected:
        if entry.type == "context_edit" and isinstance(entry.target_id, str):
            edits[entry.target_id] = entry.replacement
        elif entry.type == "custom" and entry.custom_type == TOOL_RESULT:
            _collect_result(entry, results)
    for place, entry in enumerate(selected):
        if place == later or entry.type == "context_edit":
            context.trusted_from = len(context.messages)
        if entry.type == "compaction":
            if place > 0:
                continue
            context.compaction = entry
        # Nearly every entry is one unedited message.
        shown = (entry.message,) if entry.type == "message" and entry.message is not UNSET else to_messages(entry)
        for message in shown:
            edited = edit_message(message, edits[entry.id]) if edits and entry.id in edits else message
            if edited is not None:
                context.messages.append(edited)
                context.entry_ids.append(entry.id)
    context.model, context.thinking = read_choice(path)
    context.system = replay_system(context.messages)
    if later == len(selected):
        context.trusted_from = len(context.messages)
    _answer_open_calls(context, results, is_settled)
    context.lost = tuple(_list_losses(path, selected, edits, context))
    return context


def _list_losses(
    path: Sequence[Entry], selected: Sequence[Entry], edits: Mapping[str, Any], context: Context
) -> Iterator[str]:
    for entry in selected:
        if edits.get(entry.id, entry) is None:
            continue
        if isinstance(entry, RepairedEntry):
            yield from (f"{what} (entry {quote(entry.id)}) cannot be read" for what in entry.lost)
        if entry.type == "message" and entry.message is UNSET and not getattr(entry, "lost", ()):
            yield f"entry {quote(entry.id)} holds no message"
        if entry.type in ("compaction", "branch_summary") and not isinstance(entry.summary, str):
            yield f"the summary of entry {quote(entry.id)} cannot be read"
    head, first_kept = (
        context.compaction,
        UNSET if context.compaction is None else context.compaction.first_kept_entry_id,
    )
    if head is not None and first_kept != head.id and not any(entry.id == first_kept for entry in path):
        yield f"entry {quote(first_kept)}, from which the compaction {quote(head.id)} keeps messages, is not there"
    last = next((message for message in reversed(context.messages) if type(message) is not ToolResultMessage), None)
    for message in reversed(context.messages):
        if type(message) is not ToolResultMessage:
            break
        if type(last) is AssistantMessage and message == interrupt_call(
            message.tool_call_id, message.tool_name, last.timestamp
        ):
            yield (
                f"the call {quote(message.tool_call_id)} of {message.tool_name} has no result; "
                "the model sees it as interrupted"
            )


def select_entries(path: Sequence[Entry]) -> tuple[Sequence[Entry], int]:
    """Select the entries of the context: the latest compaction, what it kept, and what came after.

    Also returns the index where the last part begins.
    """
    place = next((place for place in reversed(range(len(path))) if path[place].type == "compaction"), None)
    if place is None:
        return path, 0
    compaction = path[place]
    selected = [compaction]
    is_kept = False
    for entry in path[:place]:
        is_kept = is_kept or entry.id == compaction.first_kept_entry_id
        if is_kept and not is_system(entry):
            selected.append(entry)
    later = len(selected)
    selected.extend(path[place + 1 :])
    return selected, later


def is_system(entry: Entry) -> bool:
    return entry.type == "message" and type(entry.message) is SystemMessage


def to_messages(entry: Entry) -> list[Message]:
    """Return an entry's messages; none for kinds that are unknown or not for the model."""
    if entry.type == "message":
        return [] if entry.message is UNSET else [entry.message]
    if entry.type == "custom_message":
        return _to_custom(entry)
    if entry.type == "branch_summary" and isinstance(entry.summary, str) and entry.summary:
        from_id = entry.from_id if isinstance(entry.from_id, str) else None
        return [BranchSummaryMessage(entry.summary, from_id, parse_time_ms(entry.timestamp))]
    if entry.type == "compaction":
        return _to_checkpoint(entry)
    return []


def to_entry(message: Message, entry_id: str, system: SystemMessage) -> tuple[str, dict[str, Any]]:
    """Return kind and fields of an entry that `to_messages` turns into this message."""
    if isinstance(message, CompactionSummaryMessage):
        tokens = message.tokens_before
        kept = {"firstKeptEntryId": entry_id, "tokensBefore": tokens, "systemMessage": system}
        return "compaction", {"summary": message.summary, **kept}
    if isinstance(message, BranchSummaryMessage):
        return "branch_summary", {"fromId": message.from_id or "root", "summary": message.summary}
    if isinstance(message, CustomMessage):
        details = {} if message.details is UNSET else {"details": message.details}
        fields = {"customType": message.custom_type, "content": message.content, "display": message.display}
        return "custom_message", {**fields, **details}
    return "message", {"message": message}


def _to_custom(entry: Entry) -> list[Message]:
    fields = {
        "role": "custom",
        "customType": entry.custom_type,
        "content": entry.content,
        "display": entry.display,
        "details": entry.details,
        "timestamp": parse_time_ms(entry.timestamp),
    }
    custom = decode_message(encode_json({name: value for name, value in fields.items() if value is not UNSET}))
    return [] if custom is None else [custom]


def _to_checkpoint(entry: Entry) -> list[Message]:
    summary = CompactionSummaryMessage(
        entry.summary if isinstance(entry.summary, str) else "",
        int(entry.tokens_before) if isinstance(entry.tokens_before, int | float) else 0,
        parse_time_ms(entry.timestamp),
    )
    return [summary] if entry.system_message is UNSET else [entry.system_message, summary]


def edit_message(message: Message, replacement: Any) -> Message | None:
    """Apply a context edit; None if it removes the message."""
    if replacement is None:
        return None
    if not isinstance(message, _Editable) or not isinstance(replacement, dict):
        return message
    content = replacement.get("content")
    plain = msgspec.to_builtins(message)
    return decode_message(encode_json({**plain, "content": content})) or message


def replay_system(messages: Sequence[Message]) -> SystemMessage | None:
    """Merge all system messages: join texts, patch sections by name, add and remove tools; None without any."""
    texts: list[str] = []
    sections: dict[str, str | None] = {}
    tools: dict[str, dict[str, Any]] = {}
    timestamp: int | None = None
    for message in messages:
        if type(message) is not SystemMessage:
            continue
        timestamp = message.timestamp if timestamp is None else timestamp
        if text := _to_text(message.content):
            texts.append(text)
        for name, value in (message.sections or {}).items():
            sections.pop(name, None) if value is None else sections.update({name: value})
        for tool in message.tools_removed or []:
            tools.pop(str(tool.get("name")), None)
        for tool in message.tools_added or []:
            tools[str(tool.get("name"))] = tool
    if timestamp is None:
        return None
    return SystemMessage("\n\n".join(texts), timestamp, sections or UNSET, list(tools.values()) or UNSET)


def parse_time_ms(stamp: str) -> int:
    """Parse an ISO time into milliseconds; 0 if it is invalid."""
    try:
        return round(datetime.fromisoformat(stamp.replace("Z", "+00:00")).timestamp() * 1000)
    except (ValueError, OverflowError):
        return 0


def read_choice(path: Sequence[Entry]) -> tuple[tuple[str, str] | None, str | None]:
    """Return the model and thinking level last selected on a branch, or else last used."""
    model: tuple[str, str] | None = None
    thinking: str | None = None
    for entry in reversed(path):
        if thinking is None and entry.type == "thinking_level_change":
            thinking = entry.thinking_level if isinstance(entry.thinking_level, str) else None
        if model is None:
            model = read_model(entry)
        if model is not None and thinking is not None:
            break
    return model, thinking


def read_model(entry: Entry) -> tuple[str, str] | None:
    """Return provider and id of the model that an entry selects or was written by."""
    if entry.type == "model_change" and isinstance(entry.provider, str) and isinstance(entry.model_id, str):
        return entry.provider, entry.model_id
    message = entry.message
    if entry.type == "message" and type(message) is AssistantMessage:
        return message.provider, message.model
    return None


def _collect_result(entry: Entry, results: dict[str, tuple[str, ToolResultMessage]]) -> None:
    data = entry.data if isinstance(entry.data, dict) else {}
    message = decode_message(encode_json(data.get("message")))
    if isinstance(message, ToolResultMessage):
        results[str(data.get("toolCallId", message.tool_call_id))] = entry.id, message


def _answer_open_calls(
    context: Context, results: dict[str, tuple[str, ToolResultMessage]], is_settled: Callable[[str], bool]
) -> None:
    answered = {message.tool_call_id for message in context.messages if type(message) is ToolResultMessage}
    messages: list[Message] = []
    entry_ids: list[str] = []
    waiting: list[tuple[str, ToolResultMessage]] = []
    trusted_from = context.trusted_from
    for place, (message, entry_id) in enumerate(zip(context.messages, context.entry_ids, strict=True)):
        if waiting and type(message) is not ToolResultMessage:
            messages += [result for _, result in waiting]
            entry_ids += [source for source, _ in waiting]
            waiting = []
        if place == trusted_from:
            context.trusted_from = len(messages)
        messages.append(message)
        entry_ids.append(entry_id)
        if type(message) is not AssistantMessage or message.stop_reason in ("error", "aborted"):
            continue
        if is_settled(entry_id):
            waiting = [
                results.get(call.id) or (entry_id, interrupt_call(call.id, call.name, message.timestamp))
                for call in message.calls
                if call.id not in answered
            ]
    context.messages = messages + [result for _, result in waiting]
    context.entry_ids = entry_ids + [source for source, _ in waiting]


def _to_text(content: str | list[TextContent]) -> str:
    return content if isinstance(content, str) else "\n".join(block.text for block in content)


def _drop_none(sections: dict[str, str | None]) -> dict[str, str]:
    return {name: text for name, text in sections.items() if text is not None}
