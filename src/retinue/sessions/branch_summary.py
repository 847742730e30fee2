"""Parting: what of a conversation is left behind when somebody goes on from another entry, and the summary of it.

The rules and the entry are pi's. Must not know how a model is called or how the result is stored.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import UNSET, Struct

from retinue.core.messages import AssistantMessage, Message, SystemMessage, ToolResultMessage, Usage
from retinue.sessions.compaction import Summarise, ask_summary, estimate_tokens, list_files, read_details, render_files
from retinue.sessions.entry import Entry
from retinue.sessions.summary import render_branch_prompt
from retinue.sessions.view import to_messages

PREAMBLE: Final = "The user went another way from an earlier point of this conversation and left it. Notes on it:\n\n"
_SUMMARIES: Final = ("compaction", "branch_summary")
_NEARLY: Final = 0.9
"""A summary that no longer fits is taken along until so much of the room is used: it stands for much else."""


class Parting(Struct, frozen=True):
    """What a summary is to be made of."""

    messages: list[Message]
    """As many of the last ones as there is room for."""
    read_files: list[str]
    modified_files: list[str]


class BranchSummary(Struct, frozen=True):
    """A finished summary; the fields are those of `Session.append_branch_summary`."""

    summary: str
    usage: Usage
    details: dict[str, list[str]]


def has_words(entries: Iterable[Entry]) -> bool:
    """Whether anything was said in some entries."""
    return any(_list_words(entry) for entry in entries)


def prepare_parting(entries: Sequence[Entry], room_tokens: int) -> Parting:
    """Choose what the summary is made of: the last words in any case, others as far as there is room.

    Files count from all entries.
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
    return Parting([message for words in reversed(kept) for message in words], read_files, modified_files)


async def sum_up(
    parting: Parting, summarise: Summarise, instructions: str = "", most_chars: int | None = None
) -> BranchSummary:
    """Have the summary written, showing so much of what is left at most. Raises CompactionFailed when there is none."""
    text, usage = await ask_summary(summarise, render_branch_prompt(parting.messages, instructions, most_chars))
    files = render_files(parting.read_files, parting.modified_files)
    details = {"readFiles": parting.read_files, "modifiedFiles": parting.modified_files}
    return BranchSummary(f"{PREAMBLE}{text}{files}", usage, details)


def _list_words(entry: Entry) -> list[Message]:
    """What was said; results of tools follow from the calls, and are long."""
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
