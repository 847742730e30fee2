"""The system prompt as ordered, named, bounded sections, and what changed between two of them. Pure.

The names are those pi uses in its session files, so that either program can replay the other's prompt.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import UNSET, UnsetType

from retinue.core.messages import SystemMessage
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
"""The section that says where an agent works."""
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
    """The sections of a prompt, in order. A custom text replaces the preamble, the tool list and the rules."""
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
    """Where an agent works."""
    return _wrap(CWD, cwd)


def render_prompt(sections: Mapping[str, str]) -> str:
    """The prompt as the model reads it."""
    return "\n\n".join(sections.values())


def declare_change(
    before: Mapping[str, str],
    after: Mapping[str, str],
    tools_before: Iterable[str],
    tools_after: Sequence[ToolSpec],
    now_ms: int,
) -> SystemMessage | None:
    """The system message that turns one prompt and tool set into another; None when nothing changed."""
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
    """The text, cut where a section must end."""
    if len(text) <= MAX_SECTION_CHARS:
        return text
    return text[:MAX_SECTION_CHARS] + f"\n[cut at {MAX_SECTION_CHARS} of {len(text)} characters]"
