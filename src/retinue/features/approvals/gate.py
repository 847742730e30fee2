"""Stands before every tool call of a run: six layers, the first that refuses has the last word.

Rules, what only reads, the mode, hooks, a person, and the record of it. Hooks and the person are ports. A call that
nobody can be asked about is refused at once.
"""

import json
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from retinue.core.jsonline import to_plain
from retinue.core.messages import ToolCall
from retinue.core.question import Question
from retinue.core.run import Outcome
from retinue.core.terminal import escape_line
from retinue.core.tool import Effect, Tool, ToolResult
from retinue.engine.ids import make_run_id
from retinue.engine.questions import Desk
from retinue.engine.setup import RunSetup
from retinue.features.approvals.book import Book, Finding, Subject
from retinue.features.approvals.rules import Action, describe_call, replace_texts

NO_FACE = "Approval required but no UI available"
ALLOW, ALLOW_AGAIN, DENY = "allow", "allow this call from now on", "deny"
HOOK_DENIAL = "Denied by PreToolUse hook"


class Advice(Protocol):
    """What a hook says about a call."""

    @property
    def word(self) -> str: ...

    @property
    def reason(self) -> str: ...


async def ask_nobody(point: str, payload: Mapping[str, Any]) -> Advice | None:
    """For a run without hooks."""
    return None


async def tell_nobody(point: str, payload: Mapping[str, Any]) -> None:
    """For a run without hooks."""


@dataclass(frozen=True, slots=True)
class GatePorts:
    """What a gate needs from its run."""

    desk: Desk
    agent: str = ""
    """The name of the run's definition; empty for the main agent."""
    is_confined: bool = False
    """Its commands can change nothing: they run inside a sandbox that says so."""
    consult: Callable[[str, Mapping[str, Any]], Awaitable[Advice | None]] = ask_nobody
    tell: Callable[[str, Mapping[str, Any]], Awaitable[None]] = tell_nobody


class Approving:
    """The gate of one run, as a feature."""

    name = "approvals"

    def __init__(self, book: Book, ports: GatePorts) -> None:
        self._book = book
        self._ports = ports

    async def enter(self, setup: RunSetup) -> RunSetup:
        """The setup with the gate before all other hooks."""
        return setup.change(hooks=(Gate(self._book, self._ports, setup), *setup.hooks))

    async def leave(self, outcome: Outcome) -> Outcome:
        """Nothing to undo."""
        return outcome


class Gate:
    """Decides about the calls of one run."""

    wants: ClassVar[Mapping[str, bool]] = {"call": True}
    """What of a call made elsewhere must be known here, and that it waits for the answer."""

    def __init__(self, book: Book, ports: GatePorts, setup: RunSetup) -> None:
        self._book = book
        self._ports = ports
        self._run_id = setup.run_id
        self._cwd = str(setup.cwd)
        self._forms: dict[str, tuple[str, ...]] = {}
        self._spared: Counter[tuple[str, str]] = Counter()

    def know(self, call_id: str, forms: tuple[str, ...]) -> None:
        """What a call says where it is to be made: links and folders there are not those here."""
        self._forms[call_id] = forms

    def spare(self, tool: str, text: str) -> None:
        """A person has just allowed a call that says this: the same question is not put to them again."""
        self._spared[tool, text] += 1

    async def before(self, call: ToolCall, tool: Tool) -> ToolResult | None:
        """None lets the call pass; a refusal is its result."""
        names = (call.name, tool.spec.name, tool.spec.own_name)
        described = describe_call(names, call.arguments, self._cwd)
        if forms := self._forms.pop(call.id, ()):
            described = replace_texts(described, forms)
        subject = Subject(
            described,
            tool.effect,
            self._ports.is_confined and tool.effect is Effect.EXECUTE,
        )
        findings = await self._decide(call, subject)
        last = findings[-1]
        layers = [{"layer": found.layer, "decision": found.action, "reason": found.reason} for found in findings]
        record = {"tool": call.name, "input": call.arguments, "decision": last.action, "layers": layers}
        await self._ports.tell("tool.approval.post", record)
        if last.action == "allow":
            return None
        denied = {"toolName": call.name, "args": call.arguments, "reason": last.reason, "source": last.layer}
        await self._ports.tell("tool.execute.denied", denied)
        return deny(call.name, last.reason)

    async def after(self, call: ToolCall, tool: Tool, result: ToolResult) -> ToolResult:
        """What has passed is nobody's business here."""
        return result

    async def _decide(self, call: ToolCall, subject: Subject) -> list[Finding]:
        """What each layer said that was asked; the last one counts."""
        first = self._book.judge(subject)
        if first.action == "deny":
            return [first]
        payload = {"toolName": call.name, "args": call.arguments, "callId": call.id}
        advice = await self._ports.consult("tool.approval.pre", payload)
        found = [first]
        if advice is not None and advice.word in ("allow", "deny", "ask"):
            word: Action = "deny" if advice.word == "deny" else "ask" if advice.word == "ask" else "allow"
            reason = advice.reason or (HOOK_DENIAL if word == "deny" else "")
            if word == "allow" and first == Finding("ask", "rule", first.reason):
                word = "ask"  # the user's rule wants a person's word, which no hook can give
            found.append(Finding(word, "hook", reason))
        if found[-1].action == "ask":
            found.append(await self._confirm(call, subject, found[-1]))
        return found

    async def _confirm(self, call: ToolCall, subject: Subject, why: Finding) -> Finding:
        desk = self._ports.desk
        if not desk.has_face:
            return Finding("deny", "confirmation", NO_FACE)
        text = render_arguments(call.arguments)
        if self._spared[call.name, text] > 0:
            self._spared[call.name, text] -= 1
            return Finding("allow", "confirmation")
        question = Question(
            id=make_run_id(),
            run_id=self._run_id,
            agent=self._ports.agent,
            # One line, whatever a hook gave as its reason: the title must not look like the call.
            title=f"Allow {call.name}?" + (f" ({escape_line(why.reason, 300)})" if why.reason else ""),
            text=text,
            options=(ALLOW, ALLOW_AGAIN, DENY),
            default=DENY,
            tool=call.name,
        )
        answer = await desk.ask(question)
        if answer == ALLOW_AGAIN:
            self._book.grant(subject.call)
        if answer in (ALLOW, ALLOW_AGAIN):
            return Finding("allow", "confirmation")
        return Finding("deny", "confirmation", "denied by the user" if desk.has_face else NO_FACE)


def deny(tool: str, reason: str) -> ToolResult:
    """A refused call, for the model."""
    text = f'[Denied] Tool "{tool}" was denied: {reason or "no reason provided"}'
    return ToolResult.of(text, {"denied": True, "reason": reason}, is_error=True)


def render_arguments(arguments: Mapping[str, Any]) -> str:
    """All that a call says, nothing left out: a command as it is and last, anything else as JSON."""
    command = arguments.get("command")
    rest = {name: value for name, value in arguments.items() if name != "command" or not isinstance(value, str)}
    shown = json.dumps(to_plain(rest), indent=2, ensure_ascii=False) if rest or command is None else ""
    return "\n".join(filter(None, (shown, command if isinstance(command, str) else "")))
