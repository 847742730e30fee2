"""The rules and the mode in force for one run, and the layers that need nobody's word. Pure but for what is added.

Must not know hooks, people or how a call is made.
"""

from collections.abc import Iterable
from typing import Literal, TypeAlias

from msgspec import Struct

from retinue.core.foreign import list_aliases
from retinue.core.tool import Effect
from retinue.core.tool_table import TOOLS
from retinue.features.approvals.rules import SHELLS, Action, Rule, RuledCall, find_rule

Mode: TypeAlias = Literal["open", "default", "acceptEdits", "plan", "bypass"]
"""`open`: only rules count. The others are CodingCode's: ask about what may change things; do not ask about edits;
allow reading only; ask about nothing."""
Layer: TypeAlias = Literal["rule", "readonly", "mode", "hook", "confirmation"]
_READING = frozenset(list_aliases(row.name for row in TOOLS if row.effect in (Effect.READ, Effect.NETWORK)))
"""Tools of our own that change nothing, by all their names."""


class Finding(Struct, frozen=True):
    """What a layer has to say about a call."""

    action: Action
    layer: Layer
    reason: str = ""


class Subject(Struct, frozen=True):
    """A call, and the most its tool can do."""

    call: RuledCall
    effect: Effect
    is_confined: bool = False
    """Run where it can change nothing, whatever it is."""

    @property
    def is_reading(self) -> bool:
        """Whether it certainly changes nothing."""
        if self.is_confined or self.effect in (Effect.READ, Effect.DELEGATE):
            return True
        return self.effect is Effect.NETWORK and any(name in _READING for name in self.call.names)


class Book:
    """The rules of one run; what is added to it later concerns nobody else."""

    def __init__(self, rules: Iterable[Rule] = (), mode: Mode = "default") -> None:
        self.rules = list(rules)
        self.mode: Mode = mode
        self._granted: set[tuple[str, ...]] = set()

    def fork(self, *, mode: Mode | None = None, extra: Iterable[Rule] = (), readonly: bool = False) -> "Book":
        """A book for a run that this one's run starts: what is here now, and nothing of what comes later.

        What a person granted was granted to this run alone. Read-only forks refuse the dangerous tools.
        """
        rules = [*self.rules, *extra]
        if readonly:
            reason = "the agent is read-only"
            rules.append(Rule(action="deny", tools=SHELLS, priority=1_000_000_000, reason=reason))
        return Book(rules, mode or self.mode)

    def grant(self, call: RuledCall) -> None:
        """Do not ask about this very call again."""
        self._granted.add((*call.names, *call.texts))

    def judge(self, subject: Subject) -> Finding:
        """What the first three layers say: rules, then whether it only reads, then the mode."""
        rule = find_rule(self.rules, subject.call)
        if rule is not None:
            granted = rule.action == "ask" and self._is_granted(subject.call)
            return Finding("allow" if granted else rule.action, "rule", rule.reason)
        if self.mode == "open":
            return Finding("allow", "mode")
        if subject.is_reading:
            return Finding("allow", "readonly")
        finding = self._judge_mode(subject)
        return Finding("allow", "rule") if finding.action == "ask" and self._is_granted(subject.call) else finding

    def _judge_mode(self, subject: Subject) -> Finding:
        match self.mode:
            case "bypass":
                return Finding("allow", "mode")
            case "plan":
                return Finding("deny", "mode", "only reading is allowed in plan mode")
            case "acceptEdits" if subject.effect is Effect.WRITE:
                return Finding("allow", "mode")
        return Finding("ask", "mode")

    def _is_granted(self, call: RuledCall) -> bool:
        return (*call.names, *call.texts) in self._granted
