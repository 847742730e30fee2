"""What fills the context window of the main agent: prompt, tools, context files, skills, messages, tool results."""

from msgspec import Struct

from retinue.core.messages import (
    BranchSummaryMessage,
    CompactionSummaryMessage,
    Message,
    SystemMessage,
    ToolResultMessage,
)
from retinue.engine.setup import RunSetup
from retinue.engine.window import count_head, fit_sections, fit_specs
from retinue.sessions.compaction import count_context_tokens, estimate_tokens
from retinue.sessions.view import Context

SECTIONS = {"project_context": "context files", "skills": "skills"}
"""Sections of the prompt that are counted apart from it."""


class ContextUse(Struct, frozen=True):
    window: int
    parts: dict[str, int]
    """Tokens by what they are for, without the free ones."""
    compacts_at: int
    """The number of tokens at which the conversation is summarised; 0 for never."""

    @property
    def used(self) -> int:
        return sum(self.parts.values())

    @property
    def free(self) -> int:
        return max(0, self.window - self.used)


def measure_context(setup: RunSetup, context: Context) -> ContextUse:
    """Estimate the parts; their sum is what the provider has counted, if it has."""
    window = setup.model.info.context_window
    sections = fit_sections(setup.sections, window).sections if window else setup.sections
    specs = [tool.spec for tool in setup.tools.values()]
    prompt = "".join(text for name, text in sections.items() if name not in SECTIONS)
    parts = {
        "system prompt": count_head(prompt, ()),
        "tools": count_head("", fit_specs(specs, window) if window else specs),
        **{part: count_head(sections.get(name, ""), ()) for name, part in SECTIONS.items()},
        "summaries": 0,
        "messages": 0,
        "tool results": 0,
    }
    head = sum(parts.values())
    for message in context.messages:
        if not isinstance(message, SystemMessage):  # it only records the prompt
            parts[_name(message)] += estimate_tokens(message)
    counted, estimated = count_context_tokens(context, head), sum(parts.values()) or 1
    scaled = {name: round(tokens * counted / estimated) for name, tokens in parts.items()}
    limits = setup.compaction.fit(window, head) if window else setup.compaction
    return ContextUse(window, scaled, max(0, window - limits.reserve_tokens) if limits.enabled else 0)


def _name(message: Message) -> str:
    if isinstance(message, CompactionSummaryMessage | BranchSummaryMessage):
        return "summaries"
    return "tool results" if isinstance(message, ToolResultMessage) else "messages"
