"""The points at which hooks run, the entry of a hook in a configuration file, and what a hook may answer. Pure.

Files of the user, a project and an agent have the same entries; the caller says where an entry comes from.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias, get_args

from msgspec import Struct, structs

from retinue.core.diagnostics import show_value, suggest
from retinue.core.errors import RetinueError, quote

Word: TypeAlias = Literal["allow", "deny", "ask", "continue"]
WORDS: tuple[str, ...] = get_args(Word)
APPROVAL = "tool.approval.pre"
SPAWN = "agent.subagent.spawn.before"
STOP = "agent.turn.stop"
STEP = "agent.step.before"
AFTER, FAILED = "tool.execute.after", "tool.execute.error"
RESULTS = frozenset((AFTER, FAILED))
"""Points where a hook may change the result that the model sees, and nothing else."""
DECIDED = (APPROVAL, SPAWN, STOP, STEP, AFTER, FAILED)
"""Points where an answer counts."""
GUARDS = frozenset((APPROVAL, SPAWN))
"""Points where a hook is a guard: if it cannot be asked, the action is denied."""
ANYWHERE = "any guarded point"
"""The point of a broken hook whose real point is unknown: all guarded points."""
OBSERVED = (
    *("tool.execute.before", "tool.execute.denied", "tool.approval.post"),
    *("llm.request.before", "llm.response.after", "llm.response.error", "session.save.after"),
    *("agent.turn.start", "agent.turn.end", "agent.subagent.spawn.after", "agent.subagent.complete"),
)
SILENT = {"session.save.before": "sessions are written while a run works, so nothing comes before that"}
"""Points of other programs that are accepted here but never called."""
POINTS = (*DECIDED, *OBSERVED, *SILENT)
LIMIT_S = 30.0
"""Time limit for one hook."""
MAX_WORDS = 4_000
"""Maximum length of a reason or an injection."""


class HookFailed(RetinueError):
    """Raised when a hook could not be asked or its answer is invalid."""


class HookLate(HookFailed):
    """Raised when a hook took too long."""


class HookDecision(Struct, frozen=True):
    word: Word
    reason: str = ""
    injection: str = ""
    hook: str = ""
    is_own: bool = True
    """Whether the hook is the user's, not a project's."""
    key: str = ""
    modified_input: dict[str, Any] | None = None
    """Arguments that replace those of the call."""
    modified_output: str | None = None
    """Text that replaces the result for the model."""


def parse_decision(raw: Any, point: str = "") -> HookDecision | None:
    """Parse a hook's answer; None means no opinion. Raises HookFailed if it is invalid.

    Changes are read only at points where they apply; there, a change alone is an opinion.
    """
    if raw is None:
        return None
    if not isinstance(raw, Mapping):
        raise HookFailed(f"returned {show_value(raw)} instead of an object with a decision")
    word = raw.get("decision")
    if word is not None and word not in WORDS:
        raise HookFailed(f"returned the decision {show_value(word)}; expected {', '.join(WORDS)} or null")
    given = raw.get("modifiedInput") if point == APPROVAL and word != "deny" else None
    if given is not None and not isinstance(given, dict):
        raise HookFailed(f"returned the modifiedInput {show_value(given)}; expected an object of arguments")
    shown = raw.get("modifiedOutput") if point in RESULTS else None
    if shown is not None and not isinstance(shown, str):
        raise HookFailed(f"returned the modifiedOutput {show_value(shown)}; expected text")
    if word is None and given is None and shown is None:
        return None
    return HookDecision(
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
        raise HookFailed(f"returned the {field} {quote(show_value(value))}; expected text")
    return value[:MAX_WORDS]


Kind: TypeAlias = Literal["observer", "decision"]
Scope: TypeAlias = Literal["session", "project", "global"]
FIELDS = ("name", "description", "point", "type", "command", "args", "env", "priority", "enabled")
MAX_PRIORITY = 1_000_000
NO_NAME = "(no name)"
_ENV = "an object of texts by the names of variables"
Report: TypeAlias = Callable[[str, str], None]
"""Called with a field and what is wrong with it."""


class HookSpec(Struct, frozen=True, kw_only=True):
    """A command that runs at a point."""

    name: str
    point: str
    kind: Kind = "observer"
    command: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    priority: int = 0
    enabled: bool = True
    scope: Scope = "global"
    is_own: bool = True
    """From the user's own file, not a project's."""
    path: str = ""
    folder: str = ""
    """The base of a relative command."""
    files: dict[str, str] = {}
    """Project files that a user's hook runs, with their digests when the user approved it."""
    fault: str = ""
    """Why it cannot run as configured; a guard with a fault denies everything."""

    @property
    def is_guard(self) -> bool:
        return self.kind == "decision" and self.point in (*GUARDS, ANYWHERE)

    def describe(self) -> str:
        """Describe the hook in one line, for the user who approves it."""
        words = " ".join(quote(word, 200) for word in (self.command, *self.args))
        names = f" with {', '.join(sorted(self.env))} set" if self.env else ""
        return f"{quote(self.name)} at {self.point}: {words}{names}"


def parse_hook(raw: Any, report: Report) -> HookSpec | None:
    """Parse an entry; None for an observer or a disabled hook with a mistake.

    A guard with a mistake is kept with its fault and denies. If its point is unknown, it denies at every guarded point.
    """
    if not isinstance(raw, Mapping):
        text = f"found {show_value(raw)}; expected an object with name, point, type and command"
        report("", text)
        return stand_in(NO_NAME, text)
    entry = _Entry(raw, report)
    name, point = entry.read_text("name"), entry.read_point()
    kind, point = entry.read_kind(point)
    for field in raw:
        if field not in FIELDS:
            entry.doubt(str(field), f"unknown field{suggest(str(field), FIELDS)}")
    spec = HookSpec(
        name=name or NO_NAME,
        point=point,
        kind=kind,
        command=entry.read_text("command"),
        args=tuple(map(str, entry.read("args", _is_list, "a list of texts, one for each argument", ()))),
        env={str(key): str(value) for key, value in entry.read("env", _is_env, _ENV, {}).items()},
        priority=entry.read_priority(),
        enabled=entry.read("enabled", lambda value: isinstance(value, bool), "true or false", True),
    )
    if (entry.faults or entry.doubts) and kind == "decision" and spec.enabled and (spec.is_guard or point == STEP):
        fault = "; ".join((*entry.faults, *entry.doubts))
        return structs.replace(spec, point=point if spec.is_guard else ANYWHERE, fault=fault)
    if entry.faults:
        return None
    if point in SILENT and spec.enabled:
        report("point", f"hooks at {point} are never called: {SILENT[point]}")
    return spec


def stand_in(name: str, fault: str) -> HookSpec:
    """Create a guard in place of an unreadable entry; it denies at every guarded point."""
    return HookSpec(name=name, point=ANYWHERE, kind="decision", fault=fault)


class _Entry:
    def __init__(self, raw: Mapping[str, Any], report: Report) -> None:
        self._raw = raw
        self._report = report
        self.faults: list[str] = []
        """Mistakes that prevent it from running."""
        self.doubts: list[str] = []
        """Mistakes that matter only for guards."""

    def doubt(self, field: str, text: str) -> None:
        self.doubts.append(f"{field}: {text}")
        self._report(field, text)

    def reject(self, field: str, expected: str) -> None:
        found = show_value(self._raw[field]) if field in self._raw else "nothing"
        text = f"found {found}; expected {expected}"
        self.faults.append(f"{field}: {text}")
        self._report(field, text)

    def read_text(self, field: str) -> str:
        value = self._raw.get(field)
        if isinstance(value, str) and value.strip() and "\0" not in value:
            return value.strip()
        self.reject(field, "text")
        return ""

    def read_point(self) -> str:
        value = self._raw.get("point")
        if isinstance(value, str) and value.strip() in POINTS:
            return value.strip()
        hint = suggest(value, POINTS) if isinstance(value, str) else ""
        self.reject("point", f"a point such as {APPROVAL}{hint}")
        return ANYWHERE

    def read_kind(self, point: str) -> tuple[Kind, str]:
        value = self._raw.get("type")
        if value not in ("observer", "decision"):
            self.reject("type", "observer or decision")
        # If unclear, it decides: an observer would let through what it was meant to stop.
        if point == ANYWHERE or (value != "observer" and point in DECIDED):
            return "decision", point
        if value == "decision":
            self.reject("type", f"observer, since hooks at {point} cannot decide; {APPROVAL} can, before a call")
            return "decision", ANYWHERE
        return "observer", point

    def read(self, field: str, is_valid: Callable[[Any], bool], expected: str, default: Any) -> Any:
        """Return an optional field; the default if it is missing or invalid."""
        value = self._raw.get(field)
        if value is None or is_valid(value):
            return default if value is None else value
        self.reject(field, expected)
        return default

    def read_priority(self) -> int:
        value = 0 if self._raw.get("priority") is None else self._raw["priority"]
        if isinstance(value, bool) or not isinstance(value, int) or abs(value) > MAX_PRIORITY:
            self.doubt("priority", f"found {show_value(value)}; expected a whole number")
            return 0
        return value


def _is_text(value: Any) -> bool:
    """Return whether a value can be passed on as written; of numbers only integers can."""
    return (isinstance(value, str) and "\0" not in value) or (isinstance(value, int) and not isinstance(value, bool))


def _is_list(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


def _is_env(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        _is_text(name) and name and "=" not in str(name) and _is_text(text) for name, text in value.items()
    )
