"""The points at which hooks are told or asked, and what one may answer. Pure.

Must not know what becomes of an answer: that is decided where the point is.
"""

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, get_args

from msgspec import Struct

from retinue.core.diagnostics import show_value
from retinue.core.errors import RetinueError, quote

Word: TypeAlias = Literal["allow", "deny", "ask", "continue"]
WORDS: tuple[str, ...] = get_args(Word)
APPROVAL = "tool.approval.pre"
SPAWN = "agent.subagent.spawn.before"
STOP = "agent.turn.stop"
STEP = "agent.step.before"
DECIDED = (APPROVAL, SPAWN, STOP, STEP)
"""Where an answer counts."""
GUARDS = frozenset((APPROVAL, SPAWN))
"""Where a hook stands guard: what could not be asked there has not agreed."""
OBSERVED = (
    *("tool.execute.before", "tool.execute.after", "tool.execute.error", "tool.execute.denied", "tool.approval.post"),
    *("llm.request.before", "llm.response.after", "llm.response.error", "session.save.after"),
    *("agent.turn.start", "agent.turn.end", "agent.subagent.spawn.after", "agent.subagent.complete"),
)
SILENT = {"session.save.before": "sessions are written while a run works, so nothing comes before that"}
"""Points that other programs know and nothing is told at."""
POINTS = (*DECIDED, *OBSERVED, *SILENT)
LIMIT_S = 30.0
"""For one hook to answer."""
MAX_WORDS = 4_000
"""Of a reason or an injection."""


class HookFailed(RetinueError):
    """Raised when a hook could not be asked, or gave no answer that can be read."""


class HookLate(HookFailed):
    """Raised when a hook took too long."""


class Decision(Struct, frozen=True):
    """What a hook answers."""

    word: Word
    reason: str = ""
    injection: str = ""
    hook: str = ""
    """Who said so."""
    is_own: bool = True
    """Said by a hook of the user, not of a project."""


def parse_decision(raw: Any) -> Decision | None:
    """The decision object of a hook; None for no opinion. Raises HookFailed for what is none."""
    if raw is None:
        return None
    if not isinstance(raw, Mapping):
        raise HookFailed(f"answered {show_value(raw)} instead of an object with a decision")
    word = raw.get("decision")
    if word is None:
        return None
    if word not in WORDS:
        raise HookFailed(f"answered the decision {show_value(word)}; expected {', '.join(WORDS)} or null")
    return Decision(word, _read_text(raw, "reason"), _read_text(raw, "injection"))


def _read_text(raw: Mapping[str, Any], field: str) -> str:
    value = raw.get(field)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise HookFailed(f"answered the {field} {quote(show_value(value))}; expected text")
    return value[:MAX_WORDS]
