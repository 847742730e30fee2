"""Decides about every tool call of a run: rules, mode, hooks, then the user's answer.

Layers in order: rules, read-only check, mode, hooks, user, record. Hooks and the user are ports. If the user must be
asked but cannot be, the call is denied at once.
"""

import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from msgspec import Struct, structs

from retinue.core.jsonline import to_plain
from retinue.core.messages import ToolCall
from retinue.core.run import Question
from retinue.core.schema import fit_arguments
from retinue.core.terminal import escape_line
from retinue.core.tool import Amendment, Effect, Tool, ToolResult, list_aliases
from retinue.core.tool_table import TOOLS
from retinue.engine.calls import Answer, describe_hook_conflict
from retinue.engine.clock import make_run_id
from retinue.engine.questions import PendingQuestions
from retinue.engine.setup import Feature, RunSetup
from retinue.features.approvals.kinds import CallKind, find_kind
from retinue.features.approvals.rules import (
    PRESETS,
    SHELLS,
    STRICTNESS,
    Action,
    Rule,
    RuledCall,
    describe_call,
    find_rule,
    replace_texts,
)

if TYPE_CHECKING:
    from retinue.features.hooks.points import HookDecision

Mode: TypeAlias = Literal["open", "default", "acceptEdits", "plan", "bypass"]
"""`open`: only rules count. The others are CodingCode's: `default` asks about changes, `acceptEdits` allows edits,
`plan` allows reading only, `bypass` allows everything.
"""
Layer: TypeAlias = Literal["rule", "readonly", "mode", "hook", "confirmation"]
_READING = frozenset(list_aliases(row.name for row in TOOLS if row.effect in (Effect.READ, Effect.NETWORK)))
"""Our own tools that change nothing, by all their names."""


class LayerDecision(Struct, frozen=True):
    action: Action
    layer: Layer
    reason: str = ""


class ApprovalSubject(Struct, frozen=True):
    """A call and the effect of its tool."""

    call: RuledCall
    effect: Effect
    is_confined: bool = False
    """It runs in a read-only sandbox, so it cannot change anything."""
    kind: CallKind | None = None
    """What the user can allow together with it."""

    @property
    def is_reading(self) -> bool:
        """Whether the call certainly changes nothing."""
        if self.is_confined or self.effect in (Effect.READ, Effect.DELEGATE):
            return True
        return self.effect is Effect.NETWORK and any(name in _READING for name in self.call.names)


class RunRules:
    """The rules of one run; later additions affect only this run.

    In the modes that ask or deny, the presets apply too.
    """

    def __init__(self, rules: Iterable[Rule] = (), mode: Mode | Callable[[], Mode] = "default") -> None:
        """`mode` can be a function, for a mode that the user may change during the session."""
        self.rules = list(rules)
        self._mode = mode
        self._granted: set[tuple[str, ...]] = set()
        self._kinds: set[CallKind] = set()

    @property
    def mode(self) -> Mode:
        return self._mode() if callable(self._mode) else self._mode

    @mode.setter
    def mode(self, mode: Mode) -> None:
        self._mode = mode

    def fork(
        self,
        *,
        mode: Mode | None = None,
        extra: Iterable[Rule] = (),
        readonly: bool = False,
        shares_session: bool = False,
    ) -> "RunRules":
        """Copy the rules for a child run; later changes are not shared.

        Permissions granted by the user are not copied. Read-only forks deny the shell tools. With `shares_session`,
        the user's decisions about the session (its mode and the allowed kinds of calls) apply to both.
        """
        rules = [*self.rules, *extra]
        if readonly:
            reason = "the agent is read-only"
            rules.append(Rule(action="deny", tools=SHELLS, priority=1_000_000_000, reason=reason))
        forked = RunRules(rules, self._mode if shares_session else mode or self.mode)
        if shares_session:
            forked._kinds = self._kinds
        return forked

    def grant(self, call: RuledCall) -> None:
        """Do not ask about exactly this call again."""
        self._granted.add((*call.names, *call.texts))

    def grant_kind(self, kind: CallKind) -> None:
        """Let the mode ask about no call of this kind again; rules still do."""
        self._kinds.add(kind)

    def judge(self, subject: ApprovalSubject) -> LayerDecision:
        """Apply the first three layers: rules, read-only check, mode."""
        has_presets = self.mode not in ("open", "bypass")
        rule = find_rule((*self.rules, *PRESETS) if has_presets else self.rules, subject.call)
        if rule is not None:
            granted = rule.action == "ask" and self._is_granted(subject.call)
            return LayerDecision("allow" if granted else rule.action, "rule", rule.reason)
        if self.mode == "open":
            return LayerDecision("allow", "mode")
        if subject.is_reading:
            return LayerDecision("allow", "readonly")
        finding = self._judge_mode(subject)
        is_granted = self._is_granted(subject.call) or subject.kind in self._kinds
        return LayerDecision("allow", "rule") if finding.action == "ask" and is_granted else finding

    def _judge_mode(self, subject: ApprovalSubject) -> LayerDecision:
        match self.mode:
            case "bypass":
                return LayerDecision("allow", "mode")
            case "plan":
                return LayerDecision("deny", "mode", "only reading is allowed in plan mode")
            case "acceptEdits" if subject.effect is Effect.WRITE:
                return LayerDecision("allow", "mode")
        return LayerDecision("ask", "mode")

    def _is_granted(self, call: RuledCall) -> bool:
        return (*call.names, *call.texts) in self._granted


NO_FRONTEND = "Approval required but no UI available"
ALLOW, ALLOW_AGAIN, DENY = "allow", "allow this call from now on", "deny"
DENIED_BY_USER = "denied by the user"
_MAX_REASON = 2000
HOOK_DENIAL = "Denied by PreToolUse hook"


def is_consent(answer: str) -> bool:
    """Return whether an answer to the question about a call allows it."""
    return answer == ALLOW or answer.startswith((f"{ALLOW} ", f"{ALLOW}, "))


@dataclass(frozen=True, slots=True)
class GatePorts:
    """What a gate needs from its run."""

    questions: PendingQuestions
    agent: str
    """The name of the run's definition; empty for the main agent."""
    is_confined: bool
    """Its commands run in a read-only sandbox."""
    consult: "Callable[..., Awaitable[HookDecision | None]]"
    """Asks the hooks: the `decide` of a HookTable."""
    tell: Callable[[str, Mapping[str, Any]], Awaitable[None]]


class ApprovalFeature(Feature):
    name = "approvals"

    def __init__(self, run_rules: RunRules, ports: GatePorts) -> None:
        self._run_rules = run_rules
        self._ports = ports

    async def enter(self, setup: RunSetup) -> RunSetup:
        return setup.change(hooks=(ApprovalGate(self._run_rules, self._ports, setup), *setup.hooks))


class ApprovalGate:
    wants: ClassVar[Mapping[str, bool]] = {"call": True}
    """Which parts of a remote call are needed here; True: the call waits for the answer."""

    def __init__(self, run_rules: RunRules, ports: GatePorts, setup: RunSetup) -> None:
        self._run_rules = run_rules
        self._ports = ports
        self._run_id = setup.run_id
        self._cwd = str(setup.cwd)
        self._away: dict[str, tuple[tuple[str, ...], Amendment | None]] = {}
        self._spared: Counter[tuple[str, str]] = Counter()

    def know(self, call_id: str, forms: tuple[str, ...], made: Amendment | None = None) -> None:
        """Register the text of a remote call, whose links and folders differ from those here.

        `made` is the change that hooks here made earlier. If the call is changed again, the change is returned at once,
        so that the remote side can ask again with the new text.
        """
        self._away[call_id] = forms, made

    def spare(self, tool: str, text: str) -> None:
        """The user has just allowed a call with this text: do not ask again."""
        self._spared[tool, text] += 1

    async def before(self, call: ToolCall, tool: Tool) -> Answer:
        """Return None to allow the call, or its denial; arguments changed by hooks are checked again."""
        is_away = call.id in self._away
        forms, made = self._away.pop(call.id, ((), None))
        asked = call
        while True:
            findings = await self._decide(call, tool, forms, made)
            if not isinstance(findings, Amendment):
                break
            if is_away:
                return findings
            made, call = findings, structs.replace(call, arguments=findings.arguments)
        last = findings[-1]
        layers = [{"layer": found.layer, "decision": found.action, "reason": found.reason} for found in findings]
        record = {"tool": call.name, "input": call.arguments, "decision": last.action, "layers": layers}
        changed = {"modifiedBy": list(made.by)} if made is not None else {}
        await self._ports.tell("tool.approval.post", record | changed)
        if last.action == "allow":
            return None if call is asked else made
        denied = {"toolName": call.name, "args": call.arguments, "reason": last.reason, "source": last.layer}
        await self._ports.tell("tool.execute.denied", denied | changed)
        refusal = deny(call.name, last.reason)
        return refusal if made is None else refusal.note(made.describe())

    async def after(self, call: ToolCall, tool: Tool, result: ToolResult) -> ToolResult:
        return result

    def _describe(self, call: ToolCall, tool: Tool, forms: tuple[str, ...]) -> ApprovalSubject:
        names = (call.name, tool.spec.name, tool.spec.own_name)
        described = describe_call(names, call.arguments, self._cwd)
        is_confined = self._ports.is_confined and tool.effect is Effect.EXECUTE
        if forms:
            return ApprovalSubject(replace_texts(described, forms), tool.effect, is_confined)
        return ApprovalSubject(described, tool.effect, is_confined, find_kind(names[1:], call.arguments, self._cwd))

    async def _decide(
        self, call: ToolCall, tool: Tool, forms: tuple[str, ...], made: Amendment | None
    ) -> list[LayerDecision] | Amendment:
        """Return the findings of all layers, of which the last counts, or the change that hooks make first."""
        subject = self._describe(call, tool, forms)
        first = self._run_rules.judge(subject)
        if first.action == "deny":
            return [first]
        payload = {"toolName": call.name, "args": call.arguments, "callId": call.id}
        payload |= {"modifiedBy": list(made.by)} if made is not None else {}
        advice = await self._ports.consult(
            "tool.approval.pre",
            payload,
            fit=lambda given: fit_arguments(given, tool.spec.parameters),
            leaving_out=made.keys[-1] if made is not None else "",
        )
        found = [first]
        if advice is not None and (change := _find_change(call, tool, advice, made)) is not None:
            return change if isinstance(change, Amendment) else [first, change]
        word, reason = _join_words(advice, made)
        if word is not None:
            if word == "allow" and first == LayerDecision("ask", "rule", first.reason):
                word = "ask"  # the rule demands the user's answer, which a hook cannot replace
            found.append(LayerDecision(word, "hook", reason))
        if found[-1].action == "ask":
            found.append(await self._confirm(call, subject, found[-1], made))
        return found

    async def _confirm(
        self, call: ToolCall, subject: ApprovalSubject, why: LayerDecision, made: Amendment | None
    ) -> LayerDecision:
        questions = self._ports.questions
        if not questions.has_frontend:
            return LayerDecision("deny", "confirmation", NO_FRONTEND)
        text = render_arguments(call.arguments)
        if self._spared[call.name, text] > 0:
            self._spared[call.name, text] -= 1
            return LayerDecision("allow", "confirmation")
        # A rule or a hook asks about each call, whatever else is allowed.
        kind = subject.kind if why.layer == "mode" else None
        further = ALLOW_AGAIN if kind is None else f"{ALLOW}, and all {kind.label} in this session"
        answer = await questions.ask(self._ask_about(call, subject, why, made, further))
        if answer == ALLOW_AGAIN:
            self._run_rules.grant(subject.call)
        elif answer == further and kind is not None:
            self._run_rules.grant_kind(kind)
        if is_consent(answer):
            return LayerDecision("allow", "confirmation")
        if not questions.has_frontend:
            return LayerDecision("deny", "confirmation", NO_FRONTEND)
        reason = answer.removeprefix(DENY).removeprefix(":").strip()[:_MAX_REASON]
        return LayerDecision("deny", "confirmation", f"{DENIED_BY_USER}: {reason}" if reason else DENIED_BY_USER)

    def _ask_about(
        self, call: ToolCall, subject: ApprovalSubject, why: LayerDecision, made: Amendment | None, further: str
    ) -> Question:
        changed = f"changed by {', '.join(made.by)}" if made is not None else ""
        reason = "; ".join(filter(None, (changed, why.reason)))
        return Question(
            id=make_run_id(),
            run_id=self._run_id,
            agent=self._ports.agent,
            # One line, whatever reason a hook gave: the title must not look like the call.
            title=f"Allow {call.name}?" + (f" ({escape_line(reason, 300)})" if reason else ""),
            text=render_arguments(call.arguments),
            options=(ALLOW, further, DENY),
            default=DENY,
            tool=call.name,
            reason_for=DENY,
            also=(ALLOW_AGAIN,),
            folder=self._cwd if subject.kind is not None and subject.kind.is_change else "",
        )


def _find_change(
    call: ToolCall, tool: Tool, advice: "HookDecision", made: Amendment | None
) -> Amendment | LayerDecision | None:
    """Return the call as changed by a hook, merged with earlier changes; a denial if a hook changes it twice."""
    given = advice.modified_input
    if advice.word == "deny" or given is None or given == fit_arguments(call.arguments, tool.spec.parameters)[0]:
        return None
    past = made or Amendment({})
    by, keys = (*past.by, advice.hook), (*past.keys, advice.key)
    if advice.key in past.keys:
        return LayerDecision("deny", "hook", describe_hook_conflict(by))
    # A request to ask the user stays in force; an allow covered only what that hook saw.
    word, reason = ("ask", past.reason) if past.word == "ask" else (advice.word, advice.reason)
    return Amendment(given, by, keys, word, reason)


def _join_words(advice: "HookDecision | None", made: Amendment | None) -> tuple[Action | None, str]:
    """Return the stricter of the hooks' decision about a call and that of the hook that changed it."""
    for action in STRICTNESS:  # strictest first
        for each in (advice, made):
            if each is not None and each.word == action:
                return action, each.reason or (HOOK_DENIAL if action == "deny" else "")
    return None, ""


def deny(tool: str, reason: str) -> ToolResult:
    text = f'[Denied] Tool "{tool}" was denied: {reason or "no reason provided"}'
    return ToolResult.of(text, {"denied": True, "reason": reason}, is_error=True)


def render_arguments(arguments: Mapping[str, Any]) -> str:
    """Render all arguments without omissions: a command verbatim and last, the rest as JSON."""
    command = arguments.get("command")
    rest = {name: value for name, value in arguments.items() if name != "command" or not isinstance(value, str)}
    shown = json.dumps(to_plain(rest), indent=2, ensure_ascii=False) if rest or command is None else ""
    return "\n".join(filter(None, (shown, command if isinstance(command, str) else "")))
