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
AFTER, FAILED = "tool.execute.after", "tool.execute.error"
RESULTS = frozenset((AFTER, FAILED))
"""Where a hook may change what the model sees of a result, and nothing else."""
DECIDED = (APPROVAL, SPAWN, STOP, STEP, AFTER, FAILED)
"""Where an answer counts."""
GUARDS = frozenset((APPROVAL, SPAWN))
"""Where a hook stands guard: what could not be asked there has not agreed."""
ANYWHERE = "any guarded point"
"""Where a hook stands of which nobody can tell where it belongs: at all of those."""
OBSERVED = (
    *("tool.execute.before", "tool.execute.denied", "tool.approval.post"),
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
    key: str = ""
    """Which hook that was, told apart from others of its name."""
    modified_input: dict[str, Any] | None = None
    """What the call is to be made with."""
    modified_output: str | None = None
    """What the model is to see of the result."""


def parse_decision(raw: Any, point: str = "") -> Decision | None:
    """The decision object of a hook; None for no opinion. Raises HookFailed for what is none.

    Changes are read where they count. There they are an opinion even if nothing else is said.
    """
    if raw is None:
        return None
    if not isinstance(raw, Mapping):
        raise HookFailed(f"answered {show_value(raw)} instead of an object with a decision")
    word = raw.get("decision")
    if word is not None and word not in WORDS:
        raise HookFailed(f"answered the decision {show_value(word)}; expected {', '.join(WORDS)} or null")
    given = raw.get("modifiedInput") if point == APPROVAL and word != "deny" else None
    if given is not None and not isinstance(given, dict):
        raise HookFailed(f"answered the modifiedInput {show_value(given)}; expected an object of arguments")
    shown = raw.get("modifiedOutput") if point in RESULTS else None
    if shown is not None and not isinstance(shown, str):
        raise HookFailed(f"answered the modifiedOutput {show_value(shown)}; expected text")
    if word is None and given is None and shown is None:
        return None
    return Decision(
        word or "continue",
        _read_text(raw, "reason"),
        _read_text(raw, "injection"),
        modified_input=given,
        modified_output=shown,
    )


def _read_text(raw: Mapping[str, Any], field: str) -> str:
    value = raw.get(field)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise HookFailed(f"answered the {field} {quote(show_value(value))}; expected text")
    return value[:MAX_WORDS]
