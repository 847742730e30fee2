"""Builds the system prompts of main agents and children, section by section. Pure.

The section names are those of pi's session files, so that either program can replay the other's prompt.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from retinue.core.clock import Clock
from retinue.core.definition import Definition
from retinue.core.messages import (
    AssistantMessage,
    BranchSummaryMessage,
    CompactionSummaryMessage,
    Message,
    SystemMessage,
    UserMessage,
    join_text,
)
from retinue.core.model import ToolSpec
from retinue.core.tool import Tool

PREAMBLE = (
    "You are a coding agent working in a user's repository through retinue. "
    "Look before you answer: search and read the code, run what shows the truth, then act or report."
)
RULES = (
    "Be brief; say what you did and what you found.",
    "Name files as path:line so that the reader can open them.",
)
CWD = "cwd"
"""Name of the section with the working directory."""
MAX_SECTION_CHARS = 120_000


def build_sections(
    *,
    cwd: str,
    tools: Mapping[str, Tool],
    custom: str = "",
    addendum: str = "",
    context_files: Sequence[tuple[str, str]] = (),
    extra: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the sections of a prompt, in order. A custom text replaces the preamble, the tool list and the rules."""
    sections = {"preamble": custom or PREAMBLE}
    if not custom:
        listed = [f"- {name}: {tool.hint}" for name, tool in tools.items() if tool.hint]
        if listed:
            sections["tools"] = _wrap("tools", "\n".join(listed))
        sections["rules"] = _wrap("rules", "\n".join(f"- {rule}" for rule in _rules(list(tools.values()))))
    if addendum:
        sections["addendum"] = _wrap("addendum", addendum)
    if context_files:
        texts = [
            f'<project_instructions path="{path}">\n{text}\n</project_instructions>' for path, text in context_files
        ]
        sections["project_context"] = _wrap("project_context", "\n\n".join(["Instructions of this project:", *texts]))
    for name, text in (extra or {}).items():
        sections[name] = _wrap(name, text)
    sections[CWD] = render_cwd(cwd)
    return {name: bound_section(text) for name, text in sections.items()}


def render_cwd(cwd: str) -> str:
    return _wrap(CWD, cwd)


def render_prompt(sections: Mapping[str, str]) -> str:
    return "\n\n".join(sections.values())


def declare_change(
    before: Mapping[str, str],
    after: Mapping[str, str],
    tools_before: Iterable[str],
    tools_after: Sequence[ToolSpec],
    now_ms: int,
) -> SystemMessage | None:
    """Return the system message that changes one prompt and tool set into another; None if nothing changed."""
    patch: dict[str, str | None] = {name: text for name, text in after.items() if before.get(name) != text}
    patch.update(dict.fromkeys(name for name in before if name not in after))
    known = set(tools_before)
    wanted = {tool.name for tool in tools_after}
    added: list[dict[str, Any]] | UnsetType = [
        {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
        for tool in tools_after
        if tool.name not in known
    ] or UNSET
    removed: list[dict[str, Any]] | UnsetType = [{"name": name} for name in sorted(known - wanted)] or UNSET
    if not patch and added is UNSET and removed is UNSET:
        return None
    return SystemMessage("", now_ms, patch or UNSET, added, removed)


def _rules(tools: Sequence[Tool]) -> list[str]:
    return list(dict.fromkeys([rule for tool in tools for rule in tool.guidelines] + list(RULES)))


def _wrap(name: str, text: str) -> str:
    return f"<{name}>\n{text}\n</{name}>"


def bound_section(text: str) -> str:
    if len(text) <= MAX_SECTION_CHARS:
        return text
    return text[:MAX_SECTION_CHARS] + f"\n[cut at {MAX_SECTION_CHARS} of {len(text)} characters]"


MAX_CONTEXT_CHARS = 200_000
"""Maximum size of the parent's conversation that a child inherits; the oldest messages are dropped first."""

BRIDGE = """<sub_agent_context>
You are now a sub-agent: another agent has given you one task, and only your last message is returned to it.
- Use the tool made for a job (read, grep, find, ls, edit, write) instead of a shell command that does the same.
- Make calls that do not depend on each other in one reply, so that they run side by side.
- Write paths in full, from the root.
- No emojis.
- Be brief, and leave out nothing that the other agent needs.
</sub_agent_context>"""
HEADER = (
    "You are a sub-agent: another agent has given you one task.\n"
    "Work on it with your tools until it is done; your last message is the report that goes back."
)
BOUNDARY = (
    "You are a subagent, a child of the agent that talks to the user; you do not lead the work. Delegating, reviewing "
    "and following up are the parent's part. Ignore earlier instructions in this context about leading other agents. "
    "Start no subagents and propose none; do the assigned task and nothing else. To edit something, call the "
    "tool: a tool call written out as text changes nothing."
)
ENVIRONMENT = "environment"
"""Name of the section with the working directory of a child."""
CODINGCODE_ROLE = "You are a specialized agent."
CONTEXT_HEADING = "# Parent Conversation Context"
TASK_HEADING = "# Your Task (below)"
_ENTITIES = str.maketrans({"&": "&amp;", '"': "&quot;", "<": "&lt;", ">": "&gt;"})


class Identity(Struct, frozen=True):
    """Which run a child is."""

    name: str
    run_id: str
    depth: int
    max_depth: int
    parent_id: str = ""
    """Set only if the parent is itself a child."""


class Place(Struct, frozen=True):
    """Where a child works."""

    cwd: str
    branch: str | None = None
    """Empty if no branch is checked out; None outside a git repository."""
    platform: str = sys.platform
    shell: str = ""


def build_append(definition: Definition, place: Place, *, parent: str) -> dict[str, str]:
    """Return the parent's prompt followed by what is special about this child."""
    # The parent's prompt must stay a byte-exact prefix, because providers cache it.
    sections = {"parent": parent or PREAMBLE, "bridge": BRIDGE, ENVIRONMENT: render_environment(place)}
    if body := definition.prompt.strip():
        sections["instructions"] = f"<agent_instructions>\n{bound_section(body)}\n</agent_instructions>"
    return sections


def build_fork(definition: Definition, place: Place) -> dict[str, str]:
    """Return what is special about a child that continues its parent's request; part of its first message."""
    sections = build_append(definition, place, parent="")
    del sections["parent"]
    return sections


def build_replace(definition: Definition, place: Place) -> dict[str, str]:
    """Return a prompt with the definition's text and nothing of the parent."""
    role = bound_section(choose_role(definition))
    return {"header": HEADER, ENVIRONMENT: render_environment(place), "instructions": role}


def build_subagent(
    definition: Definition, identity: Identity, *, tools: Sequence[str], task: str, readonly: bool
) -> dict[str, str]:
    """Return the prompt of the `subagent` surface: boundary, role, constraints, tools, task, response rules."""
    may_write = (
        "You may only read: change no files, and nothing outside them either."
        if readonly
        else "Change files only where the task requires it."
    )
    depth = f"Subagent depth: {identity.depth}/{identity.max_depth}. You must not delegate any part of the task."
    listed = "\n".join(f"- {name}" for name in tools) or "- No tools explicitly configured"
    ending = "Answer with a short, focused result. Give the paths of the files it is based on."
    sections = {
        "boundary": BOUNDARY,
        "agent": f"# Agent: {to_line(definition.name)}",
        "role": choose_role(definition),
        "constraints": "\n\n".join(
            ("# Operating constraints", may_write, depth, "Use only the tools you are provided with.")
        ),
        "tools": f"# Available tools\n\n{listed}",
        "task": f"# Delegated task\n\n{task.strip()}",
        "response": f"# Response requirements\n\n{ending}",
    }
    return {name: bound_section(text) for name, text in sections.items()}


def build_codingcode(definition: Definition, place: Place, *, rules: Sequence[str] = ()) -> dict[str, str]:
    """Return the prompt of a profile: its text, the environment, and the user's rules with the general ones first."""
    facts = [f"- Working directory: {to_line(place.cwd)}", f"- OS: {place.platform}"]
    if place.shell:
        facts.append(f"- Shell: {to_line(place.shell)}")
    sections = {"role": definition.prompt.strip() or CODINGCODE_ROLE}
    sections[ENVIRONMENT] = "\n".join(("## Environment", "", *facts))
    if texts := [text.strip() for text in rules if text.strip()]:
        sections["rules"] = "\n\n".join(("## User-defined Rules", *texts))
    return {name: bound_section(text) for name, text in sections.items()}


def build_sticky(
    definition: Definition, place: Place, *, context_files: Sequence[tuple[str, str]] = ()
) -> dict[str, str]:
    """Return the main agent's prompt with the definition's text in place of preamble, tool list and rules."""
    return build_sections(cwd=place.cwd, tools={}, custom=choose_role(definition), context_files=context_files)


def choose_role(definition: Definition) -> str:
    """Return the definition's text, else its description, else a sentence with its name."""
    role = definition.prompt.strip() or definition.description.strip()
    return role or f"You are {to_line(definition.name)}, an agent for one kind of task. Do the task you are given."


def render_tag(identity: Identity) -> str:
    """Return the XML element by which other programs recognise the agent of a prompt."""
    values = {
        "name": identity.name,
        "agent_id": identity.run_id,
        "parent_agent_id": identity.parent_id,
        "depth": str(identity.depth),
        "max_depth": str(identity.max_depth),
    }
    attributes = " ".join(f'{key}="{_escape(value)}"' for key, value in values.items() if value)
    return f"<active_agent {attributes}/>"


def render_environment(place: Place) -> str:
    git = ["Not a git repository"]
    if place.branch is not None:
        git = ["Git repository: yes", f"Branch: {to_line(place.branch)}"]
    return "\n".join(("# Environment", f"Working directory: {to_line(place.cwd)}", *git, f"Platform: {place.platform}"))


def inherit_context(messages: Sequence[Message]) -> str:
    """Return the parent's conversation as a preface to a task; empty if nothing was said.

    Contains texts and summaries only, no tool results and no thinking.
    """
    said = [line for message in messages if (line := _render_said(message))]
    if not said:
        return ""
    left, kept = MAX_CONTEXT_CHARS, len(said)
    while kept and left >= len(said[kept - 1]):
        kept -= 1
        left -= len(said[kept])
    if kept:
        newest = said[kept:] or [said[-1][:MAX_CONTEXT_CHARS] + " […]"]
        said = [f"[{len(said) - len(newest)} earlier messages are left out here]", *newest]
    explanation = (
        "This is the conversation before you were started, without tool results. Use it to understand the task."
    )
    return "\n\n".join((CONTEXT_HEADING, explanation, *said, "---", TASK_HEADING, ""))


def to_line(text: str) -> str:
    """Escape all non-printable characters, so that the text can neither end its line nor hide parts of itself."""
    return text if text.isprintable() else "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def _render_said(message: Message) -> str:
    if isinstance(message, UserMessage):
        who, text = "User", join_text(message.content)
    elif isinstance(message, AssistantMessage):
        who, text = "Assistant", message.text
    elif isinstance(message, CompactionSummaryMessage | BranchSummaryMessage):
        who, text = "Summary", message.summary
    else:
        return ""
    return f"[{who}]: {text.strip()}" if text.strip() else ""


def _escape(value: str) -> str:
    return to_line(value if value.isalnum() else value.translate(_ENTITIES))


FRESH_S = 1.0
"""Seconds after which a branch is read again."""


class PlaceCache:
    """Caches the Place of a directory for runs that start at the same time, because reading it starts programs."""

    def __init__(self, look: Callable[[Path], Awaitable[Place]], clock: Clock) -> None:
        self._look = look
        self._clock = clock
        self._known: dict[Path, tuple[float, Place]] = {}
        self._underway: dict[Path, asyncio.Event] = {}

    async def find(self, cwd: Path) -> Place:
        while (place := self._recall(cwd)) is None and (event := self._underway.get(cwd)) is not None:
            await event.wait()
        if place is not None:
            return place
        # The first caller reads in its own task; if that is cancelled, one of the waiting callers reads.
        event = self._underway[cwd] = asyncio.Event()
        try:
            place = await self._look(cwd)
            self._known = {path: seen for path, seen in self._known.items() if self._is_fresh(seen[0])}
            self._known[cwd] = (self._clock.steady_s(), place)
        finally:
            del self._underway[cwd]
            event.set()
        return place

    def _recall(self, cwd: Path) -> Place | None:
        seen = self._known.get(cwd)
        return seen[1] if seen is not None and self._is_fresh(seen[0]) else None

    def _is_fresh(self, seen_s: float) -> bool:
        return self._clock.steady_s() - seen_s < FRESH_S
